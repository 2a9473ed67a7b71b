// SPDX-License-Identifier: BSD-2-Clause
//
// Owners of verbs objects: destroying must succeed, so a test hardly ever cleans up by hand.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cstdlib>
#include <cstring>
#include <memory>

namespace verbena::test {

template <auto Destroy>
struct Destroyer {
  template <typename Object>
  void operator()(Object* object) const {
    EXPECT_EQ(Destroy(object), 0);
  }
};

using Context = std::unique_ptr<ibv_context, Destroyer<ibv_close_device>>;
using Pd = std::unique_ptr<ibv_pd, Destroyer<ibv_dealloc_pd>>;
using Mr = std::unique_ptr<ibv_mr, Destroyer<ibv_dereg_mr>>;
using Ah = std::unique_ptr<ibv_ah, Destroyer<ibv_destroy_ah>>;
using Channel = std::unique_ptr<ibv_comp_channel, Destroyer<ibv_destroy_comp_channel>>;
using Cq = std::unique_ptr<ibv_cq, Destroyer<ibv_destroy_cq>>;
using Xrcd = std::unique_ptr<ibv_xrcd, Destroyer<ibv_close_xrcd>>;
using Srq = std::unique_ptr<ibv_srq, Destroyer<ibv_destroy_srq>>;
using Qp = std::unique_ptr<ibv_qp, Destroyer<ibv_destroy_qp>>;

constexpr int kAllAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

// Zeroed memory that begins with a page, and its registration.
class Buffer {
 public:
  Buffer() = default;
  Buffer(ibv_pd* pd, size_t size, int access = kAllAccess)
      : size_(size),
        memory_(static_cast<uint8_t*>(aligned_alloc(kPage, (size + kPage - 1) / kPage * kPage))) {
    memset(memory_.get(), 0, size);
    mr_.reset(ibv_reg_mr(pd, memory_.get(), size, access));
    EXPECT_NE(mr_, nullptr) << strerror(errno);
    if (mr_ == nullptr) return;
    lkey_ = mr_->lkey;
    rkey_ = mr_->rkey;
  }

  uint8_t* data() const { return memory_.get(); }
  size_t size() const { return size_; }
  uint64_t address(size_t offset = 0) const { return reinterpret_cast<uintptr_t>(memory_.get() + offset); }
  uint32_t lkey() const { return lkey_; }
  uint32_t rkey() const { return rkey_; }
  ibv_sge sge(size_t offset, size_t length) const {
    return {.addr = address(offset), .length = static_cast<uint32_t>(length), .lkey = lkey()};
  }
  void fill(uint8_t first) const {
    for (size_t i = 0; i < size_; i++) memory_.get()[i] = static_cast<uint8_t>(first + i * 7);
  }
  void unregister() { mr_.reset(); }  // the keys are remembered

 private:
  static constexpr size_t kPage = 4096;
  struct Free {
    void operator()(void* memory) const { free(memory); }
  };

  size_t size_ = 0;
  uint32_t lkey_ = 0;
  uint32_t rkey_ = 0;
  std::unique_ptr<uint8_t, Free> memory_;
  Mr mr_;
};

}  // namespace verbena::test
