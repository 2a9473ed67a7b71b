// SPDX-License-Identifier: BSD-2-Clause
//
// The sender of datagrams: its errors, its states, and what it copies from the program when it posts.
#include <gtest/gtest.h>

#include "engine/objects/cq.h"
#include "engine/objects/memory_objects.h"
#include "engine/objects/qp.h"
#include "engine/rules/send_rules.h"
#include "unit/engine/datagram_scene.h"

namespace verbena {
namespace {

class DatagramSending : public ::testing::Test, protected DatagramScene {
 protected:
  ibv_qp_state state_of(const Side& side) { return qp_state(*side); }
  // A request that the sender itself rejects.
  ibv_wc fail() {
    EXPECT_EQ(send_to(a, b.number(), {out.sge(0, 4097)}, 1), 0);
    return a.sent();
  }
};

TEST_F(DatagramSending, LongerThanTheMtuIsALengthError) {
  const ibv_wc wc = fail();
  EXPECT_EQ(wc.status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(wc.vendor_err, static_cast<uint32_t>(VendorError::message_too_long));
}

TEST_F(DatagramSending, LongerThanTheMtuIsNotSent) {
  ASSERT_EQ(receive(*b, {in.sge(0, 8192)}), 0);
  fail();
  EXPECT_TRUE(nothing(b.recv_cq.get()));
}

TEST_F(DatagramSending, AWrongLkeyIsAProtectionError) {
  ibv_sge sge = out.sge(0, 8);
  sge.lkey ^= 0xff00;
  ASSERT_EQ(send_to(a, b.number(), {sge}), 0);
  EXPECT_EQ(a.sent().status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(DatagramSending, AHandleOfAnotherPdIsAnOperationError) {
  Owned<Pd> other = make_pd(context.get());
  Address ah(other.get(), address_of(gid()));
  Sges sges{out.sge(0, 8)};
  ibv_send_wr wr = datagram(sges, b.number());
  wr.wr.ud.ah = ah.ah();
  ASSERT_EQ(post(*a, wr), 0);
  const ibv_wc wc = a.sent();
  EXPECT_EQ(wc.status, IBV_WC_LOC_QP_OP_ERR);
  EXPECT_EQ(wc.vendor_err, static_cast<uint32_t>(VendorError::address_handle_other_pd));
}

TEST_F(DatagramSending, NoHandleIsAnOperationError) {
  Sges sges{out.sge(0, 8)};
  ibv_send_wr wr = datagram(sges, b.number());
  wr.wr.ud.ah = nullptr;
  ASSERT_EQ(post(*a, wr), 0);
  EXPECT_EQ(a.sent().status, IBV_WC_LOC_QP_OP_ERR);
}

TEST_F(DatagramSending, AnErrorEndsSendingOnly) {
  fail();
  EXPECT_EQ(state_of(a), IBV_QPS_SQE);
}

TEST_F(DatagramSending, InSqeItStillReceives) {
  fail();
  ASSERT_EQ(receive(*a, {in.sge(0, 100)}), 0);
  sent(b, a.number(), out.sge(0, 8));
  EXPECT_EQ(a.received().status, IBV_WC_SUCCESS);
}

TEST_F(DatagramSending, WhatIsPostedInSqeIsFlushed) {
  fail();
  ASSERT_EQ(send_to(a, b.number(), {out.sge(0, 8)}, 2), 0);
  const ibv_wc wc = a.sent();
  EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(wc.wr_id, 2u);
}

TEST_F(DatagramSending, FromSqeItGoesOnInRts) {
  fail();
  ASSERT_EQ(to_state(*a, IBV_QPS_RTS), 0);
  ASSERT_EQ(receive(*b, {in.sge(0, 100)}), 0);
  sent(a, b.number(), out.sge(0, 8));
  EXPECT_EQ(b.received().status, IBV_WC_SUCCESS);
}

TEST_F(DatagramSending, OperationsOfConnectionsAreRefused) {
  Sges sges{out.sge(0, 8)};
  ibv_send_wr wr = datagram(sges, b.number());
  wr.opcode = IBV_WR_RDMA_WRITE;
  EXPECT_EQ(post(*a, wr), EINVAL);
}

TEST_F(DatagramSending, UnsignaledDatagramsHaveNoCompletion) {
  ASSERT_EQ(receive(*b, {in.sge(0, 100)}), 0);
  Sges sges{out.sge(0, 8)};
  ibv_send_wr wr = datagram(sges, b.number());
  wr.send_flags = 0;
  ASSERT_EQ(post(*a, wr), 0);
  EXPECT_EQ(b.received().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(nothing(a.send_cq.get()));
}

TEST_F(DatagramSending, InSqdDatagramsWaitForRts) {
  ASSERT_EQ(receive(*b, {in.sge(0, 100)}), 0);
  ASSERT_EQ(to_state(*a, IBV_QPS_SQD), 0);
  ASSERT_EQ(send_to(a, b.number(), {out.sge(0, 8)}, 3), 0);
  EXPECT_TRUE(nothing(b.recv_cq.get()));
  ASSERT_EQ(to_state(*a, IBV_QPS_RTS), 0);
  EXPECT_EQ(a.sent().wr_id, 3u);
  EXPECT_EQ(b.received().status, IBV_WC_SUCCESS);
}

TEST_F(DatagramSending, AHandleMayBeDestroyedOncePosted) {
  ASSERT_EQ(receive(*b, {in.sge(0, 100)}), 0);
  ASSERT_EQ(to_state(*a, IBV_QPS_SQD), 0);
  ASSERT_EQ(send_to(a, b.number(), {out.sge(0, 8)}), 0);
  to_device.destroy();
  ASSERT_EQ(to_state(*a, IBV_QPS_RTS), 0);
  EXPECT_EQ(b.received().status, IBV_WC_SUCCESS);
}

TEST_F(DatagramSending, InlineBytesAreTakenWhenPosted) {
  ASSERT_EQ(receive(*b, {in.sge(0, 100)}), 0);
  ASSERT_EQ(to_state(*a, IBV_QPS_SQD), 0);
  uint8_t bytes[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  Sges sges{{reinterpret_cast<uint64_t>(bytes), sizeof bytes, 0}};
  ibv_send_wr wr = datagram(sges, b.number());
  wr.send_flags |= IBV_SEND_INLINE;
  ASSERT_EQ(post(*a, wr), 0);
  std::memset(bytes, 0, sizeof bytes);
  ASSERT_EQ(to_state(*a, IBV_QPS_RTS), 0);
  ASSERT_EQ(b.received().status, IBV_WC_SUCCESS);
  EXPECT_EQ(in.data()[kGrh + 7], 8);
}

TEST_F(DatagramSending, AChangedQkeyCountsForWhatComes) {
  ibv_qp_attr attr{};
  attr.qkey = 0x77;
  ASSERT_EQ(modify_qp(*b, &attr, IBV_QP_QKEY), 0);
  ASSERT_EQ(receive(*b, {in.sge(0, 100)}), 0);
  sent(a, b.number(), out.sge(0, 8), 0x77);
  EXPECT_EQ(b.received().status, IBV_WC_SUCCESS);
}

TEST_F(DatagramSending, TheQkeyIsTold) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(query_qp(*a, &attr, &init), 0);
  EXPECT_EQ(attr.qkey, kQkey);
  EXPECT_EQ(init.qp_type, IBV_QPT_UD);
  EXPECT_EQ(init.cap.max_recv_wr, 64u);
}

class DatagramNotification : public ::testing::Test, protected DatagramScene {
 protected:
  DatagramNotification() {
    EXPECT_EQ(create_comp_channel(context.get(), &channel_), 0);
    armed_ = make_cq(context.get(), 64, channel_, 0xc0);
    c_ = make(0xc, {}, armed_.get());
  }
  ~DatagramNotification() override {
    c_.qp.reset();
    armed_.reset();
    close(channel_);
  }
  int send_one(unsigned flags) {
    Sges sges{out.sge(0, 8)};
    ibv_send_wr wr = datagram(sges, c_.number());
    wr.send_flags = flags;
    return post(*a, wr);
  }
  int channel_ = -1;
  Owned<Cq> armed_;
  Side c_;
};

TEST_F(DatagramNotification, IsRaised) {
  ASSERT_EQ(receive(*c_, {in.sge(0, 100)}), 0);
  ASSERT_EQ(req_notify_cq(armed_.get(), false), 0);
  ASSERT_EQ(send_one(0), 0);
  EXPECT_EQ(completion_event(channel_), 0xc0u);
}

TEST_F(DatagramNotification, IsNotRaisedForAnUnsolicitedOne) {
  ASSERT_EQ(receive(*c_, {in.sge(0, 100)}), 0);
  ASSERT_EQ(req_notify_cq(armed_.get(), true), 0);
  ASSERT_EQ(send_one(0), 0);
  EXPECT_EQ(completion_event(channel_, 0), UINT64_MAX);
}

TEST_F(DatagramNotification, IsRaisedForASolicitedOne) {
  ASSERT_EQ(receive(*c_, {in.sge(0, 100)}), 0);
  ASSERT_EQ(req_notify_cq(armed_.get(), true), 0);
  ASSERT_EQ(send_one(IBV_SEND_SOLICITED), 0);
  EXPECT_EQ(completion_event(channel_), 0xc0u);
}

}  // namespace
}  // namespace verbena
