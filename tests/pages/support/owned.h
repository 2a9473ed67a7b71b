// SPDX-License-Identifier: BSD-2-Clause
//
// Owners of librdmacm's objects, and memory with its registration.
#pragma once

#include <gtest/gtest.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include <cstring>
#include <memory>
#include <vector>

namespace verbena::pages {

template <auto Release>
struct Releaser {
  template <typename Object>
  void operator()(Object* object) const {
    if constexpr (std::is_void_v<decltype(Release(object))>)
      Release(object);
    else
      EXPECT_EQ(Release(object), 0) << strerror(errno);
  }
};

// rdma_destroy_ep destroys what rdma_create_id made as well, with its QP and SRQ. Events of the id must have
// been acknowledged, or it does not return; those of an id without a channel of the user's are.
using CmId = std::unique_ptr<rdma_cm_id, Releaser<rdma_destroy_ep>>;
using Info = std::unique_ptr<rdma_addrinfo, Releaser<rdma_freeaddrinfo>>;
using EventChannel = std::unique_ptr<rdma_event_channel, Releaser<rdma_destroy_event_channel>>;
using Event = std::unique_ptr<rdma_cm_event, Releaser<rdma_ack_cm_event>>;
struct Deregister {  // rdma_dereg_mr is a static function: no template argument
  void operator()(ibv_mr* mr) const { EXPECT_EQ(rdma_dereg_mr(mr), 0) << strerror(errno); }
};
using Mr = std::unique_ptr<ibv_mr, Deregister>;
using Pd = std::unique_ptr<ibv_pd, Releaser<ibv_dealloc_pd>>;
using Cq = std::unique_ptr<ibv_cq, Releaser<ibv_destroy_cq>>;
using Ah = std::unique_ptr<ibv_ah, Releaser<ibv_destroy_ah>>;

// Zeroed memory, registered for `id` by rdma_reg_msgs unless said otherwise.
class Memory {
 public:
  using Register = ibv_mr* (*)(rdma_cm_id*, void*, size_t);

  Memory() = default;
  Memory(rdma_cm_id* id, size_t size, Register how = rdma_reg_msgs)
      : bytes_(size), mr_(how(id, bytes_.data(), size)) {
    EXPECT_NE(mr_, nullptr) << strerror(errno);
  }

  Memory(Memory&&) = default;
  Memory& operator=(Memory&& other) {
    mr_.reset();  // before its bytes
    bytes_ = std::move(other.bytes_);
    mr_ = std::move(other.mr_);
    return *this;
  }

  uint8_t* data(size_t offset = 0) { return bytes_.data() + offset; }
  size_t size() const { return bytes_.size(); }
  ibv_mr* mr() const { return mr_.get(); }
  uint64_t address(size_t offset = 0) { return reinterpret_cast<uintptr_t>(data(offset)); }
  ibv_sge sge(size_t offset, size_t length) {
    return {.addr = address(offset), .length = static_cast<uint32_t>(length), .lkey = mr_->lkey};
  }
  void fill(uint8_t first) {
    for (size_t i = 0; i < size(); i++) bytes_[i] = static_cast<uint8_t>(first + i * 7);
  }
  bool equals(Memory& other, size_t length, size_t offset = 0, size_t other_offset = 0) {
    return memcmp(data(offset), other.data(other_offset), length) == 0;
  }
  void deregister() { mr_.reset(); }

 private:
  std::vector<uint8_t> bytes_;
  Mr mr_;
};

// What librdmacm gives back as wr_id.
inline void* context_of(uint64_t id) { return reinterpret_cast<void*>(static_cast<uintptr_t>(id)); }

}  // namespace verbena::pages
