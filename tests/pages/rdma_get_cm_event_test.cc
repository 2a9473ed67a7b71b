// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_get_cm_event(3), sentence by sentence.
//
// clang-format off
// | the page says | case |
// | --- | --- |
// | retrieves a communication event | AnEventIsRetrievedOnce |
// | if no events are pending, by default, the call will block | WithoutAnEventItBlocks |
// | returns 0 on success, or -1 on error; errno will be set | NonblockingWithoutAnEventItIsMinusOneAndEagain, WithoutAPlaceForItItIsMinusOneAndEinval |
// | can be changed by modifying the file descriptor | NonblockingWithoutAnEventItIsMinusOneAndEagain |
// | all events must be acknowledged by rdma_ack_cm_event; destruction will block until then | rdma_ack_cm_event |
// | id: the identifier associated with the event; CONNECT_REQUEST: a new one | ARequestNamesANewIdAndTheListener |
// | listen_id: the corresponding listening identifier | ARequestNamesANewIdAndTheListener |
// | event: the type | each type below |
// | status: zero if successful, else a negative errno or a transport specific value | ASuccessHasStatusZero; rdma_connect, rdma_reject |
// | param: conn or ud; the data of either | rdma_connect, rdma_accept, rdma_join_multicast |
// | private_data: deallocated when calling rdma_ack_cm_event | not testable: it may not be looked at |
// | ADDR_RESOLVED, ROUTE_RESOLVED | TheStepsOfResolvingHaveTheirEvents |
// | ADDR_ERROR | rdma_resolve_addr |
// | ROUTE_ERROR | unit.Families.AGidThatNobodyHasHasNoRouteOnInfiniBand: on RoCE a route is not asked for |
// | CONNECT_REQUEST, ESTABLISHED | rdma_accept |
// | CONNECT_RESPONSE: only on ids without a QP | WithoutAQueuePairTheAnswerIsAResponse; rdma_establish |
// | CONNECT_ERROR: may be generated on the active or passive side | WhenTheQueuePairCannotConnectItIsAnError |
// | UNREACHABLE, REJECTED | rdma_reject, rdma_connect |
// | DISCONNECTED | rdma_disconnect |
// | DEVICE_REMOVAL, ADDR_CHANGE, MULTICAST_ERROR | unit/cm/device_events_test, programs.mckey.device_events: they take `verbena event` |
// | MULTICAST_JOIN | rdma_join_multicast |
// | TIMEWAIT_EXIT: the QP is ready to be re-used | AfterTheTimewaitThereIsAnEvent |
// clang-format on
#include <fcntl.h>

#include <future>

#include "async_test.h"

namespace verbena::pages {
namespace {

class RdmaGetCmEvent : public AsyncTest {
 protected:
  void start_resolving() {
    active_ = make_id(RDMA_PS_TCP, active_channel_.get());
    Address to = address_of(listener_);
    ASSERT_EQ(rdma_resolve_addr(active_.get(), nullptr, to.get(), kResolveMs), 0);
  }
};

TEST_F(RdmaGetCmEvent, AnEventIsRetrievedOnce) {
  start_resolving();
  const Event event = next_event(active_channel_.get());
  ASSERT_NE(event, nullptr);
  EXPECT_FALSE(has_event(active_channel_));
}

TEST_F(RdmaGetCmEvent, WithoutAnEventItBlocks) {
  auto event = std::async(std::launch::async, [this] {
    rdma_cm_event* taken = nullptr;
    EXPECT_EQ(rdma_get_cm_event(active_channel_.get(), &taken), 0);
    return Event(taken);
  });
  EXPECT_EQ(event.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  start_resolving();
  EXPECT_EQ(name_of(event.get()), "RDMA_CM_EVENT_ADDR_RESOLVED");
}

TEST_F(RdmaGetCmEvent, NonblockingWithoutAnEventItIsMinusOneAndEagain) {
  const int fd = active_channel_->fd;
  ASSERT_EQ(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), 0);
  rdma_cm_event* event = nullptr;
  errno = 0;
  EXPECT_EQ(rdma_get_cm_event(active_channel_.get(), &event), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(RdmaGetCmEvent, WithoutAPlaceForItItIsMinusOneAndEinval) {
  errno = 0;
  EXPECT_EQ(rdma_get_cm_event(active_channel_.get(), nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(RdmaGetCmEvent, ARequestNamesANewIdAndTheListener) {
  const Event event = request();
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(event->listen_id, listener_.get());
  EXPECT_NE(event->id, listener_.get());
  EXPECT_NE(event->id, active_.get());
  EXPECT_EQ(event->id->channel, passive_channel_.get());
}

TEST_F(RdmaGetCmEvent, ASuccessHasStatusZero) {
  start_resolving();
  const Event event = next_event(active_channel_.get());
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(event->status, 0);
}

TEST_F(RdmaGetCmEvent, TheStepsOfResolvingHaveTheirEvents) {
  start_resolving();
  EXPECT_EQ(next_name(active_channel_.get()), "RDMA_CM_EVENT_ADDR_RESOLVED");
  ASSERT_EQ(rdma_resolve_route(active_.get(), kResolveMs), 0);
  EXPECT_EQ(next_name(active_channel_.get()), "RDMA_CM_EVENT_ROUTE_RESOLVED");
}

TEST_F(RdmaGetCmEvent, WithoutAQueuePairTheAnswerIsAResponse) {
  start_resolving();
  ASSERT_EQ(next_name(active_channel_.get()), "RDMA_CM_EVENT_ADDR_RESOLVED");
  ASSERT_EQ(rdma_resolve_route(active_.get(), kResolveMs), 0);
  ASSERT_EQ(next_name(active_channel_.get()), "RDMA_CM_EVENT_ROUTE_RESOLVED");
  rdma_conn_param parameters = parameters_with();
  parameters.qp_num = 77;
  ASSERT_EQ(rdma_connect(active_.get(), &parameters), 0);
  take_request();
  create_qp(passive_);
  ASSERT_EQ(rdma_accept(passive_.get(), &parameters), 0) << strerror(errno);
  const Event event = next_event(active_channel_.get());
  EXPECT_EQ(name_of(event), "RDMA_CM_EVENT_CONNECT_RESPONSE");
  EXPECT_EQ(event->param.conn.qp_num, passive_->qp->qp_num);
}

// cma.c, ucma_process_conn_resp: a QP that is in error already is not taken to RTR; the response is rejected.
TEST_F(RdmaGetCmEvent, WhenTheQueuePairCannotConnectItIsAnError) {
  request();
  ASSERT_NE(passive_, nullptr);
  create_qp(passive_);
  ibv_qp* lost = active_->qp;
  ASSERT_NE(lost, nullptr);
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(lost, &attr, IBV_QP_STATE), 0);
  rdma_conn_param parameters = parameters_with();
  ASSERT_EQ(rdma_accept(passive_.get(), &parameters), 0) << strerror(errno);
  EXPECT_EQ(next_name(active_channel_.get()), "RDMA_CM_EVENT_CONNECT_ERROR");
}

TEST_F(RdmaGetCmEvent, AfterTheTimewaitThereIsAnEvent) {
  establish();
  ASSERT_EQ(rdma_disconnect(active_.get()), 0);
  ASSERT_EQ(next_name(passive_channel_.get()), "RDMA_CM_EVENT_DISCONNECTED");
  ASSERT_EQ(rdma_disconnect(passive_.get()), 0);
  ASSERT_EQ(next_name(active_channel_.get()), "RDMA_CM_EVENT_DISCONNECTED");
  EXPECT_EQ(next_name(active_channel_.get()), "RDMA_CM_EVENT_TIMEWAIT_EXIT");
  EXPECT_EQ(next_name(passive_channel_.get()), "RDMA_CM_EVENT_TIMEWAIT_EXIT");
}

}  // namespace
}  // namespace verbena::pages
