// SPDX-License-Identifier: BSD-2-Clause
//
// ibv_create_comp_channel(3), ibv_req_notify_cq(3), ibv_get_cq_event(3), ibv_ack_cq_events(3).
#include <fcntl.h>

#include <future>

#include "pair.h"

namespace verbena::test {
namespace {

TEST_F(DeviceTest, AChannelIsCloseOnExec) {
  Channel channel(ibv_create_comp_channel(context_.get()));
  ASSERT_NE(channel, nullptr) << strerror(errno);
  EXPECT_NE(fcntl(channel->fd, F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(DeviceTest, AChannelMadeNonBlockingAnswersEagain) {
  Channel channel(ibv_create_comp_channel(context_.get()));
  ASSERT_NE(channel, nullptr);
  ASSERT_EQ(fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK), 0);
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  EXPECT_EQ(ibv_get_cq_event(channel.get(), &cq, &cq_context), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(CqTest, AChannelIsBusyWhileACqUsesIt) {
  Channel channel(ibv_create_comp_channel(context_.get()));
  ASSERT_NE(channel, nullptr);
  Cq cq = make_cq(1, channel.get());
  ASSERT_NE(cq, nullptr);
  EXPECT_EQ(ibv_destroy_comp_channel(channel.get()), EBUSY);
}

// The responder's CQ is on a channel.
class EventTest : public PairTest {
 protected:
  void SetUp() override {
    PairTest::SetUp();
    if (HasFatalFailure()) return;
    channel_.reset(ibv_create_comp_channel(context_.get()));
    ASSERT_NE(channel_, nullptr) << strerror(errno);
    requester_.reset();
    responder_.reset();
    quiet_cq_ = std::move(responder_cq_);
    responder_cq_ = make_cq(64, channel_.get());
    ASSERT_NE(responder_cq_, nullptr);
    make_pair();
  }
  void TearDown() override {
    requester_.reset();
    responder_.reset();
    responder_cq_.reset();
    channel_.reset();
  }

  void send(unsigned flags = 0) {
    ASSERT_EQ(receive(remote_.sge(0, 64)), 0);
    ibv_sge sge = local_.sge(0, 8);
    ibv_send_wr wr = request(IBV_WR_SEND, &sge);
    wr.send_flags |= flags;
    ASSERT_EQ(carry_out(wr).status, IBV_WC_SUCCESS);
  }
  void arm(bool solicited_only) { ASSERT_EQ(ibv_req_notify_cq(responder_cq_.get(), solicited_only), 0); }
  ibv_cq* read_event() {
    ibv_cq* cq = nullptr;
    void* cq_context = nullptr;
    if (!becomes_readable(channel_->fd) || ibv_get_cq_event(channel_.get(), &cq, &cq_context) != 0)
      return nullptr;
    EXPECT_EQ(cq_context, this);
    return cq;
  }

  Channel channel_;
  Cq quiet_cq_;
};

TEST_F(EventTest, ComesOnceAfterArming) {
  arm(false);
  send();
  send();
  EXPECT_EQ(read_event(), responder_cq_.get());
  EXPECT_FALSE(is_readable(channel_->fd));
  ibv_ack_cq_events(responder_cq_.get(), 1);
}

TEST_F(EventTest, DoesNotComeUnarmed) {
  send();
  EXPECT_FALSE(is_readable(channel_->fd));
}

// As with mlx5; ibv_req_notify_cq(3) speaks of the next completion alone.
TEST_F(EventTest, ComesForACompletionThatNoEventHasToldOf) {
  send();
  arm(false);
  EXPECT_EQ(read_event(), responder_cq_.get());
  arm(false);
  EXPECT_FALSE(is_readable(channel_->fd));
  ibv_ack_cq_events(responder_cq_.get(), 1);
}

TEST_F(EventTest, SolicitedOnlyDoesNotComeForACompletionBeforeArming) {
  send(IBV_SEND_SOLICITED);
  arm(true);
  EXPECT_FALSE(is_readable(channel_->fd));
}

TEST_F(EventTest, SolicitedOnlyIgnoresTheUnsolicited) {
  arm(true);
  send();
  EXPECT_FALSE(is_readable(channel_->fd));
}

TEST_F(EventTest, SolicitedOnlyHearsTheSolicited) {
  arm(true);
  send(IBV_SEND_SOLICITED);
  EXPECT_EQ(read_event(), responder_cq_.get());
  ibv_ack_cq_events(responder_cq_.get(), 1);
}

TEST_F(EventTest, SolicitedOnlyHearsAnError) {
  arm(true);
  ASSERT_EQ(receive(remote_.sge(0, 64)), 0);
  ASSERT_EQ(to_state(responder_.get(), IBV_QPS_ERR), 0);
  EXPECT_EQ(read_event(), responder_cq_.get());
  ibv_ack_cq_events(responder_cq_.get(), 1);
}

// InfiniBand 11.4.2.2: a request for any completion is not narrowed by a later one for solicited only.
TEST_F(EventTest, ArmingForSolicitedDoesNotNarrow) {
  arm(false);
  arm(true);
  send();
  EXPECT_EQ(read_event(), responder_cq_.get());
  ibv_ack_cq_events(responder_cq_.get(), 1);
}

TEST_F(EventTest, DestroyTakesTheUnreadEventAlong) {
  arm(false);
  send();
  ASSERT_TRUE(becomes_readable(channel_->fd));
  requester_.reset();
  responder_.reset();
  responder_cq_.reset();
  EXPECT_FALSE(is_readable(channel_->fd));
}

TEST_F(EventTest, DestroyLeavesTheOtherCqsEvents) {
  Cq other = make_cq(8, channel_.get());
  ASSERT_NE(other, nullptr);
  arm(false);
  send();
  ASSERT_TRUE(becomes_readable(channel_->fd));
  other.reset();
  EXPECT_EQ(read_event(), responder_cq_.get());
  ibv_ack_cq_events(responder_cq_.get(), 1);
}

TEST_F(EventTest, DestroyWaitsForTheAcknowledgement) {
  arm(false);
  send();
  ASSERT_EQ(read_event(), responder_cq_.get());
  requester_.reset();
  responder_.reset();
  auto destroyed = std::async(std::launch::async, [cq = responder_cq_.get()] { return ibv_destroy_cq(cq); });
  EXPECT_EQ(destroyed.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  ibv_ack_cq_events(responder_cq_.release(), 1);
  EXPECT_EQ(destroyed.get(), 0);
}

// A program that forgets an acknowledgement hangs. It is told so, without being asked, after a second.
TEST_F(EventTest, DestroySaysWhatItWaitsFor) {
  arm(false);
  send();
  ASSERT_EQ(read_event(), responder_cq_.get());
  requester_.reset();
  responder_.reset();
  testing::internal::CaptureStderr();
  auto destroyed = std::async(std::launch::async, [cq = responder_cq_.get()] { return ibv_destroy_cq(cq); });
  EXPECT_EQ(destroyed.wait_for(std::chrono::milliseconds(1500)), std::future_status::timeout);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(
      said.find(
          "ibv_destroy_cq: CQ " + std::to_string(responder_cq_->handle) +
          ": waits for 1 of 1 completion events, which ibv_get_cq_event has returned, to be acknowledged by "
          "ibv_ack_cq_events"),
      std::string::npos)
      << said;
  ibv_ack_cq_events(responder_cq_.release(), 1);
  EXPECT_EQ(destroyed.get(), 0);
}

}  // namespace
}  // namespace verbena::test
