// SPDX-License-Identifier: BSD-2-Clause
//
// Requests that were carried out and are sent again: by an honest peer after a broken connection, by another
// one at any time. And refusals without a valid reason.
#include <gtest/gtest.h>

#include "unit/engine/played_node.h"

namespace verbena {
namespace {

using wire::AnswerHead;
using wire::FrameKind;
using wire::RequestHead;

constexpr uint32_t kRepeatedSize = 64;

class RepeatedRead : public ::testing::Test {
 protected:
  void begin(unsigned access) {
    QpSetup setup;
    setup.access = access;
    connect(there.end.qp.get(), PlayedNode::kQpn, End::address_of(false), setup);
    there.meet();
  }
  void say(ibv_wr_opcode opcode, uint64_t number, uint32_t psn) {
    RequestHead head{};
    head.kind = FrameKind::kRequest;
    head.opcode = static_cast<uint8_t>(opcode);
    head.connection = IBV_QPT_RC | IBV_MTU_1024 << 4;
    head.target_qpn = qp_number(there.end.qp.get());
    head.source_qpn = PlayedNode::kQpn;
    head.path_generation = 1;
    head.number = number;
    head.psn = psn;
    head.size = kRepeatedSize;
    head.remote_address = there.end.memory.address();
    head.rkey = there.end.memory.rkey();
    there.say(head, std::vector<std::byte>(opcode == IBV_WR_RDMA_READ ? 0 : kRepeatedSize, std::byte{1}));
  }
  PlayedNode there;
};

TEST_F(RepeatedRead, IsAnsweredAgainAndWhatFollowsGoesOn) {
  begin(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  for (int i = 0; i < 2; ++i) {
    say(IBV_WR_RDMA_READ, 0, 0);
    const AnswerHead read = there.hear_answer();
    EXPECT_EQ(read.kind, FrameKind::kReadData);
    EXPECT_EQ(read.size(), kRepeatedSize);
  }
  say(IBV_WR_RDMA_WRITE, 1, 1);
  EXPECT_EQ(there.hear_answer().kind, FrameKind::kAck);
}

// Its number was another request's.
TEST_F(RepeatedRead, OfAQueuePairThatMayNotBeReadIsRefused) {
  begin(IBV_ACCESS_REMOTE_WRITE);
  say(IBV_WR_RDMA_WRITE, 0, 0);
  EXPECT_EQ(there.hear_answer().kind, FrameKind::kAck);
  say(IBV_WR_RDMA_READ, 0, 0);
  const AnswerHead refusal = there.hear_answer();
  EXPECT_EQ(refusal.kind, FrameKind::kNak);
  EXPECT_EQ(refusal.value, static_cast<uint64_t>(VendorError::remote_qp_no_right));
}

TEST_F(RepeatedRead, OfAQueuePairInErrorIsNotAnswered) {
  begin(IBV_ACCESS_REMOTE_READ);
  say(IBV_WR_RDMA_READ, 0, 0);
  EXPECT_EQ(there.hear_answer().kind, FrameKind::kReadData);
  ASSERT_EQ(to_state(there.end.qp.get(), IBV_QPS_ERR), 0);
  say(IBV_WR_RDMA_READ, 0, 0);
  EXPECT_EQ(there.hear_answer().kind, FrameKind::kNotReady);
}

// A refused request fails, whatever the reason.
class RefusedRequest : public RepeatedRead, public ::testing::WithParamInterface<uint64_t> {};

TEST_P(RefusedRequest, WithoutAReasonIsOneAllTheSame) {
  begin(IBV_ACCESS_REMOTE_WRITE);
  ASSERT_EQ(there.end.write_there(0, 0, kRepeatedSize, 7), 0);
  const std::vector<std::byte> frame = there.hear_and_tell();
  ASSERT_FALSE(frame.empty());
  ASSERT_EQ(PlayedNode::kind_of(frame), FrameKind::kRequest);
  const auto asked = PlayedNode::head_of<RequestHead>(frame);
  there.say(AnswerHead{0,
                       FrameKind::kNak,
                       0,
                       {},
                       asked.source_qpn,
                       asked.target_qpn,
                       asked.path_generation,
                       asked.number,
                       GetParam()});
  const ibv_wc wc = there.end.sent();
  EXPECT_EQ(wc.wr_id, 7u);
  EXPECT_EQ(wc.status, IBV_WC_REM_OP_ERR);
}

INSTANTIATE_TEST_SUITE_P(Reason, RefusedRequest, ::testing::Values(0u, 54321u));

}  // namespace
}  // namespace verbena
