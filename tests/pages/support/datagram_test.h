// SPDX-License-Identifier: BSD-2-Clause
//
// Two ids of RDMA_PS_UDP: `active_` has looked `passive_` up (SIDR), whose listener answered, and has an
// address handle for it. Their ids have QPs that the library made.
#pragma once

#include "connected_test.h"

namespace verbena::pages {

class UdpTest : public IdTest {
 protected:
  static constexpr size_t kSize = 2048;
  static constexpr size_t kGrh = 40;

  void SetUp() override {
    IdTest::SetUp();
    if (HasFatalFailure()) return;
    listener_ = make_listener(RDMA_PS_UDP);
    active_ = make_resolved_id(listener_, RDMA_PS_UDP);
    create_qp(active_, IBV_QPT_UD);
    std::thread server([this] { accept_one(); });
    EXPECT_EQ(rdma_connect(active_.get(), nullptr), 0) << strerror(errno);
    server.join();
    ASSERT_NE(passive_, nullptr);
    ASSERT_NE(active_->event, nullptr);
    ASSERT_EQ(active_->event->event, RDMA_CM_EVENT_ESTABLISHED);
    remote_ = active_->event->param.ud;
    ah_.reset(ibv_create_ah(active_->pd, &remote_.ah_attr));
    ASSERT_NE(ah_, nullptr) << strerror(errno);
    active_memory_ = Memory(active_.get(), kSize);
    passive_memory_ = Memory(passive_.get(), kSize);
  }

  void receive_at_passive(uint64_t id) {
    ASSERT_EQ(
        rdma_post_recv(passive_.get(), context_of(id), passive_memory_.data(), kSize, passive_memory_.mr()),
        0);
  }

  CmId listener_, active_, passive_;
  rdma_ud_param remote_ = {};
  Ah ah_;
  Memory active_memory_, passive_memory_;

 private:
  void accept_one() {
    rdma_cm_id* id = nullptr;
    ASSERT_EQ(rdma_get_request(listener_.get(), &id), 0) << strerror(errno);
    passive_.reset(id);
    create_qp(passive_, IBV_QPT_UD);
    rdma_conn_param parameters = {};
    parameters.qp_num = id->qp->qp_num;
    EXPECT_EQ(rdma_accept(id, &parameters), 0) << strerror(errno);
  }
};

}  // namespace verbena::pages
