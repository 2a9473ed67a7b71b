// SPDX-License-Identifier: BSD-2-Clause
//
// A device, a protection domain and a CQ, and owners of the objects that a test makes.
#pragma once

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "../verbs/owned.h"

namespace verbena::test {

// For verbs that are static inline functions: Destroyer<> would be another type in each file.
struct DeallocMw {
  void operator()(ibv_mw* mw) const { EXPECT_EQ(ibv_dealloc_mw(mw), 0); }
};
struct CloseXrcd {
  void operator()(ibv_xrcd* xrcd) const { EXPECT_EQ(ibv_close_xrcd(xrcd), 0); }
};

// What CMakeLists.txt says that the profile claims; -1: it says nothing.
inline int claimed_in_environment(const char* name) {
  const char* text = getenv(name);
  return text != nullptr ? atoi(text) : -1;
}

// Attributes of the device under test, on which the cases depend. All 0 without a device.
struct Device {
  Device() {
    ibv_device** list = ibv_get_device_list(nullptr);
    Context context(list != nullptr && list[0] != nullptr ? ibv_open_device(list[0]) : nullptr);
    if (list != nullptr) ibv_free_device_list(list);
    if (context == nullptr) return;
    EXPECT_EQ(ibv_query_device(context.get(), &attr), 0);
    EXPECT_EQ(ibv_query_port(context.get(), 1, &port), 0);
  }
  ibv_device_attr attr = {};
  ibv_port_attr port = {};
};
inline const Device& device() {
  static const Device it;
  return it;
}
// The cases of `all` that apply to this device.
template <typename Case, typename Condition>
std::vector<Case> where(Condition&& condition, std::vector<Case> all) {
  std::erase_if(all, [&](const Case& one) { return !condition(device(), one); });
  return all;
}

class Claims : public testing::Test {
 public:
  void SetUp() override {
    ibv_device** list = ibv_get_device_list(nullptr);
    ASSERT_NE(list, nullptr);
    context_.reset(list[0] != nullptr ? ibv_open_device(list[0]) : nullptr);
    ibv_free_device_list(list);
    ASSERT_NE(context_, nullptr) << "no device: these tests run under `verbena run`";
    ASSERT_EQ(ibv_query_device(context_.get(), &device_), 0);
    ASSERT_EQ(ibv_query_port(context_.get(), 1, &port_), 0);
    ASSERT_EQ(ibv_query_gid(context_.get(), 1, 0, &gid_), 0);
    pd_.reset(ibv_alloc_pd(context_.get()));
    ASSERT_NE(pd_, nullptr);
    cq_.reset(cq(8));
    ASSERT_NE(cq_, nullptr);
  }
  void TearDown() override {
    while (!memberships_.empty()) detach_last();
  }

  // Takes ownership of `made`; 0, or why there is nothing to take.
  template <typename Owner, typename Object>
  static int keep(std::vector<Owner>& owners, Object* made) {
    if (made == nullptr) return errno;
    owners.emplace_back(made);
    return 0;
  }

  ibv_cq* cq(int entries) { return ibv_create_cq(context_.get(), entries, nullptr, nullptr, 0); }
  ibv_srq* srq(uint32_t max_wr, uint32_t max_sge) {
    ibv_srq_init_attr attr = {};
    attr.attr = {.max_wr = max_wr, .max_sge = max_sge, .srq_limit = 0};
    ibv_srq* made = ibv_create_srq(pd_.get(), &attr);
    srq_given_ = attr.attr;
    return made;
  }
  ibv_qp* qp(ibv_qp_type type, const ibv_qp_cap& cap = {1, 1, 1, 1, 0}, ibv_srq* srq = nullptr) {
    ibv_qp_init_attr init = {};
    init.send_cq = init.recv_cq = cq_.get();
    init.srq = srq;
    init.cap = cap;
    init.qp_type = type;
    ibv_qp* made = ibv_create_qp(pd_.get(), &init);
    given_ = init.cap;
    return made;
  }
  ibv_ah_attr address() const {
    ibv_ah_attr attr = {};
    attr.is_global = 1;
    attr.grh.dgid = gid_;
    attr.grh.hop_limit = 1;
    attr.port_num = 1;
    attr.dlid = port_.lid;
    return attr;
  }

  ibv_qp* new_datagram_qp() {
    ibv_qp* made = qp(IBV_QPT_UD);
    if (made != nullptr) qps_.emplace_back(made);
    return made;
  }
  ibv_qp* first_datagram_qp() { return qps_.empty() ? new_datagram_qp() : qps_[0].get(); }

  int attach(ibv_qp* qp, int group) {
    if (qp == nullptr) return errno;
    const ibv_gid name = group_gid(group);
    const int error = ibv_attach_mcast(qp, &name, kMulticastLid);
    if (error != 0) return error;
    memberships_.push_back({qp, group});
    attached_ = static_cast<int>(memberships_.size());
    return 0;
  }
  void detach_last() {
    const ibv_gid name = group_gid(memberships_.back().group);
    EXPECT_EQ(ibv_detach_mcast(memberships_.back().qp, &name, kMulticastLid), 0);
    memberships_.pop_back();
    attached_ = static_cast<int>(memberships_.size());
  }

  Context context_;
  ibv_device_attr device_ = {};
  ibv_port_attr port_ = {};
  ibv_gid gid_ = {};
  uint8_t bytes_[64] = {};
  Pd pd_;
  Cq cq_;
  ibv_qp_cap given_ = {};
  ibv_srq_attr srq_given_ = {};
  std::vector<Pd> pds_;
  std::vector<Cq> cqs_;
  std::vector<Mr> mrs_;
  std::vector<std::unique_ptr<ibv_mw, DeallocMw>> mws_;
  std::vector<Ah> ahs_;
  std::vector<Srq> srqs_;
  std::vector<std::unique_ptr<ibv_xrcd, CloseXrcd>> xrcds_;
  std::vector<Qp> qps_;
  int attached_ = 0;

 private:
  static constexpr uint16_t kMulticastLid = 0xc001;
  static ibv_gid group_gid(int group) {
    ibv_gid gid = {};
    gid.raw[0] = 0xff;
    gid.raw[1] = 0x12;
    gid.raw[14] = static_cast<uint8_t>(group >> 8);
    gid.raw[15] = static_cast<uint8_t>(group);
    return gid;
  }
  struct Membership {
    ibv_qp* qp;
    int group;
  };
  std::vector<Membership> memberships_;
};

}  // namespace verbena::test
