// SPDX-License-Identifier: BSD-2-Clause
//
// ibv_get_async_event(3): what arrives on the asynchronous descriptor, and that destroying waits for
// acknowledgements.
#include <fcntl.h>

#include <future>

#include "pair.h"

namespace verbena::test {
namespace {

class AsyncEventTest : public PairTest {
 protected:
  void expect_event(ibv_event_type type, ibv_qp* qp) {
    std::optional<ibv_async_event> event = next_async_event();
    ASSERT_TRUE(event.has_value()) << "no event, " << ibv_event_type_str(type) << " expected";
    EXPECT_EQ(event->event_type, type) << ibv_event_type_str(event->event_type);
    EXPECT_EQ(event->element.qp, qp);
    ibv_ack_async_event(&*event);
  }
  // Makes the responder refuse a request.
  void provoke_access_error() {
    ibv_sge sge = local_.sge(0, 8);
    ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
    wr.wr.rdma.rkey ^= 0xff00;
    ASSERT_EQ(carry_out(wr).status, IBV_WC_REM_ACCESS_ERR);
  }
};

TEST_F(AsyncEventTest, DescriptorIsCloseOnExec) {
  EXPECT_NE(fcntl(context_->async_fd, F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(AsyncEventTest, AccessErrorOfTheResponder) {
  provoke_access_error();
  expect_event(IBV_EVENT_QP_ACCESS_ERR, responder_.get());
}

TEST_F(AsyncEventTest, SendQueueDrained) {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_SQD;
  attr.en_sqd_async_notify = 1;
  ASSERT_EQ(ibv_modify_qp(requester_.get(), &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
  expect_event(IBV_EVENT_SQ_DRAINED, requester_.get());
}

TEST_F(AsyncEventTest, NoDrainedEventUnlessAskedFor) {
  ASSERT_EQ(to_state(requester_.get(), IBV_QPS_SQD), 0);
  EXPECT_FALSE(is_readable(context_->async_fd));
}

// InfiniBand 11.6.3.1: the first message on a QP in RTR.
TEST_F(AsyncEventTest, CommunicationEstablished) {
  ASSERT_EQ(to_state(responder_.get(), IBV_QPS_RESET), 0);
  ASSERT_EQ(to_init(responder_.get()), 0);
  ASSERT_EQ(to_rtr(responder_.get(), requester_->qp_num), 0);
  ASSERT_EQ(receive(remote_.sge(0, 64)), 0);
  ASSERT_EQ(carry_out(IBV_WR_SEND, local_.sge(0, 8)).status, IBV_WC_SUCCESS);
  expect_event(IBV_EVENT_COMM_EST, responder_.get());
}

TEST_F(AsyncEventTest, DestroyTakesTheUnreadEventAlong) {
  provoke_access_error();
  ASSERT_TRUE(becomes_readable(context_->async_fd));
  responder_.reset();
  EXPECT_FALSE(is_readable(context_->async_fd));
}

TEST_F(AsyncEventTest, DestroyWaitsForTheAcknowledgement) {
  provoke_access_error();
  std::optional<ibv_async_event> event = next_async_event();
  ASSERT_TRUE(event.has_value());
  ASSERT_EQ(event->element.qp, responder_.get());
  auto destroyed = std::async(std::launch::async, [qp = responder_.release()] { return ibv_destroy_qp(qp); });
  EXPECT_EQ(destroyed.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  ibv_ack_async_event(&*event);
  EXPECT_EQ(destroyed.get(), 0);
}

TEST_F(AsyncEventTest, DestroySaysWhatItWaitsFor) {
  provoke_access_error();
  std::optional<ibv_async_event> event = next_async_event();
  ASSERT_TRUE(event.has_value());
  ASSERT_EQ(event->element.qp, responder_.get());
  const uint32_t number = responder_->qp_num;
  testing::internal::CaptureStderr();
  auto destroyed = std::async(std::launch::async, [qp = responder_.release()] { return ibv_destroy_qp(qp); });
  EXPECT_EQ(destroyed.wait_for(std::chrono::milliseconds(1500)), std::future_status::timeout);
  const std::string said = testing::internal::GetCapturedStderr();
  char expected[80];
  snprintf(expected, sizeof expected, "ibv_destroy_qp: QP 0x%06x: waits for 1 of 1 asynchronous events",
           number);
  EXPECT_NE(said.find(expected), std::string::npos) << said;
  ibv_ack_async_event(&*event);
  EXPECT_EQ(destroyed.get(), 0);
}

// InfiniBand 11.6.3.2: a CQ that overflows is an error of the CQ, and of the QPs that complete there.
TEST_F(AsyncEventTest, CqOverrun) {
  requester_.reset();
  cq_ = make_cq(1);
  ibv_qp_init_attr init = qp_init(cq_.get(), cq_.get());
  init.cap.max_send_wr = static_cast<uint32_t>(cq_->cqe) + 8;
  requester_.reset(ibv_create_qp(pd_.get(), &init));
  ASSERT_NE(requester_, nullptr);
  connect(requester_.get(), responder_->qp_num);
  ASSERT_EQ(to_state(responder_.get(), IBV_QPS_RESET), 0);
  connect(responder_.get(), requester_->qp_num);
  ibv_sge sge = local_.sge(0, 8);
  ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
  for (int i = 0; i <= cq_->cqe; i++) post(&wr);
  std::optional<ibv_async_event> event = next_async_event();
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->event_type, IBV_EVENT_CQ_ERR);
  EXPECT_EQ(event->element.cq, cq_.get());
  ibv_ack_async_event(&*event);
}

}  // namespace
}  // namespace verbena::test
