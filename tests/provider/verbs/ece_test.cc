// SPDX-License-Identifier: BSD-2-Clause
//
// ibv_query_ece(3), ibv_set_ece(3), and what the device's one option does (emulator/engine/queue_pair/ece.cc).
#include "pair.h"

namespace verbena::test {
namespace {

constexpr uint32_t kMayWaitInTheSlot = 1;

class EceTest : public PairTest {
 protected:
  static ibv_ece ece_of(ibv_qp* qp) {
    ibv_ece ece = {};
    EXPECT_EQ(ibv_query_ece(qp, &ece), 0);
    EXPECT_EQ(ece.comp_mask, 0u);
    return ece;
  }
  // A pair whose requester agreed to `options` before it was connected.
  void connect_with(uint32_t options) {
    requester_ = make_qp();
    ibv_qp_init_attr init = qp_init(responder_cq_.get(), responder_cq_.get());
    responder_.reset(ibv_create_qp(pd_.get(), &init));
    ibv_ece ece = ece_of(requester_.get());
    ece.options = options;
    ASSERT_EQ(ibv_set_ece(requester_.get(), &ece), 0);
    connect(requester_.get(), responder_->qp_num);
    connect(responder_.get(), requester_->qp_num);
  }
  // Is a message in its buffer as soon as it has been sent?
  bool arrives_before_it_is_polled(size_t length) {
    memset(remote_.data(), 0, length);
    memset(local_.data(), 7, length);
    EXPECT_EQ(receive(remote_.sge(0, static_cast<uint32_t>(length))), 0);
    EXPECT_EQ(carry_out(IBV_WR_SEND, local_.sge(0, static_cast<uint32_t>(length))).status, IBV_WC_SUCCESS);
    const bool arrived = same_bytes(length);
    EXPECT_EQ(next_status(responder_cq_.get()), IBV_WC_SUCCESS);
    EXPECT_TRUE(same_bytes(length));
    return arrived;
  }
};

TEST_F(EceTest, TheVendorIsTheDevices) {
  ibv_device_attr device = {};
  ASSERT_EQ(ibv_query_device(context_.get(), &device), 0);
  EXPECT_EQ(ece_of(requester_.get()).vendor_id, device.vendor_id & 0xffffff);
}

TEST_F(EceTest, WhatIsOfferedIsInForce) {
  EXPECT_EQ(ece_of(requester_.get()).options, kMayWaitInTheSlot);
  EXPECT_FALSE(arrives_before_it_is_polled(8));
}

TEST_F(EceTest, WhatIsSetIsInForce) {
  connect_with(0);
  EXPECT_EQ(ece_of(requester_.get()).options, 0u);
  for (const size_t length : {8, 64, 256, 1000}) EXPECT_TRUE(arrives_before_it_is_polled(length)) << length;
}

TEST_F(EceTest, AnUnknownOptionIsNotAccepted) {
  const Qp qp = make_qp();
  ibv_ece ece = ece_of(qp.get());
  ece.options = 0xff;
  ASSERT_EQ(ibv_set_ece(qp.get(), &ece), 0);
  EXPECT_EQ(ece.options, kMayWaitInTheSlot);
  EXPECT_EQ(ece_of(qp.get()).options, kMayWaitInTheSlot);
}

TEST_F(EceTest, AnotherVendorsOptionsAreInvalid) {
  const Qp qp = make_qp();
  ibv_ece ece = ece_of(qp.get());
  ece.vendor_id ^= 1;
  EXPECT_EQ(ibv_set_ece(qp.get(), &ece), EINVAL);
}

TEST_F(EceTest, AFieldThatIsNotKnownIsInvalid) {
  const Qp qp = make_qp();
  ibv_ece ece = ece_of(qp.get());
  ece.comp_mask = 1;
  EXPECT_EQ(ibv_set_ece(qp.get(), &ece), EINVAL);
}

TEST_F(EceTest, OfAConnectedQueuePairItIsTooLate) {
  ibv_ece ece = ece_of(requester_.get());
  EXPECT_EQ(ibv_set_ece(requester_.get(), &ece), EINVAL);
}

}  // namespace
}  // namespace verbena::test
