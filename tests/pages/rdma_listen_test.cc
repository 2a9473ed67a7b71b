// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_listen(3), sentence by sentence.
//
// clang-format off
// | the page says | case |
// | --- | --- |
// | initiates a listen for incoming connection requests | clause rdma_listen.zero |
// | or datagram service lookup | DatagramLookupsArrive |
// | restricted to the locally bound source address | clause rdma_listen.restricted |
// | backlog of incoming connection requests | RdmaListenBacklog.WithItWaiting* |
// | returns 0 on success, or -1 on error; errno will be set | ASecondTimeIsMinusOneAndEinval, AfterConnectingIsMinusOneAndEinval |
// | must have bound the id by rdma_bind_addr | WithoutAnAddressItBindsToAPortByItself, as Linux does |
// | bound to a specific IP address: restricted to that and the associated device | clause rdma_listen.restricted |
// | bound to a port number only: across all RDMA devices | clause rdma_listen.all-devices |
//
// And of rdma_destroy_id(3): RdmaListenBacklog.DestroyedWith*.
// clang-format on
#include "async_test.h"

namespace verbena::pages {
namespace {

class RdmaListen : public AsyncTest {
 protected:
  // What the caller of `address` is told.
  std::string call(Address address, rdma_port_space space = RDMA_PS_TCP) {
    active_ = make_id(space, active_channel_.get());
    if (rdma_resolve_addr(active_.get(), nullptr, address.get(), kResolveMs) != 0) return strerror(errno);
    const std::string resolved = next_name(active_channel_.get());
    if (resolved != "RDMA_CM_EVENT_ADDR_RESOLVED") return resolved;
    EXPECT_EQ(rdma_resolve_route(active_.get(), kResolveMs), 0);
    EXPECT_EQ(next_name(active_channel_.get()), "RDMA_CM_EVENT_ROUTE_RESOLVED");
    create_qp(active_, space == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC);
    rdma_conn_param parameters = parameters_with();
    EXPECT_EQ(rdma_connect(active_.get(), &parameters), 0) << strerror(errno);
    return "called";
  }
};

TEST_F(RdmaListen, DatagramLookupsArrive) {
  listener_ = make_listener(RDMA_PS_UDP, passive_channel_.get());
  ASSERT_EQ(call(address_of(listener_), RDMA_PS_UDP), "called");
  EXPECT_EQ(take_request()->listen_id, listener_.get());
}

// Two callers of a listener with a backlog of 1, and that both requests have been there: a third one, to
// another listener, comes behind them.
class RdmaListenBacklog : public RdmaListen {
 protected:
  void call_twice(rdma_port_space space) {
    listener_ = make_listener(space, passive_channel_.get(), 1);
    ASSERT_EQ(call(address_of(listener_), space), "called");
    first_ = std::move(active_);
    second_channel_ = make_channel();
    std::swap(active_channel_, second_channel_);
    ASSERT_EQ(call(address_of(listener_), space), "called");
    second_ = std::move(active_);
    std::swap(active_channel_, second_channel_);
    const EventChannel other_channel = make_channel();
    const CmId other = make_listener(RDMA_PS_TCP, other_channel.get());
    ASSERT_EQ(call(address_of(other)), "called");
    const Event event = next_event(other_channel.get());
    ASSERT_NE(event, nullptr);
    const CmId request(event->id);
  }
  EventChannel second_channel_;  // outlives the ids
  CmId first_, second_;
};

// Linux (ucma.c, ucma_event_handler; cm.c, cm_destroy_id): what is beyond the backlog is as if it had never
// come. The caller repeats it, here after 4.6 s.
TEST_F(RdmaListenBacklog, WithItWaitingARequestIsHeardOfLater) {
  call_twice(RDMA_PS_TCP);
  take_request();
  ASSERT_NE(passive_, nullptr);
  const CmId taken = std::move(passive_);
  EXPECT_FALSE(has_event(passive_channel_)) << "two requests, with a backlog of one";
  EXPECT_FALSE(has_event(second_channel_)) << "it is not rejected";
  take_request();
  ASSERT_NE(passive_, nullptr);
  create_qp(passive_);
  rdma_conn_param parameters = parameters_with();
  ASSERT_EQ(rdma_accept(passive_.get(), &parameters), 0) << strerror(errno);
  EXPECT_EQ(next_name(second_channel_.get()), "RDMA_CM_EVENT_ESTABLISHED");
}

// As above: of a lookup cm_destroy_id rejects, whatever the reason.
TEST_F(RdmaListenBacklog, WithItWaitingALookupIsRejected) {
  call_twice(RDMA_PS_UDP);
  const Event event = next_event(second_channel_.get());
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(name_of(event), "RDMA_CM_EVENT_UNREACHABLE");
  EXPECT_EQ(event->status, 2) << "IB_SIDR_REJECT";
  take_request();
  EXPECT_FALSE(has_event(passive_channel_));
}

// rdma_destroy_id(3) cancels what is outstanding; Linux (ucma.c, ucma_free_ctx) destroys the requests that
// nobody has fetched.
TEST_F(RdmaListenBacklog, DestroyedWithRequestsWaitingItsCallersAreRejected) {
  listener_ = make_listener(RDMA_PS_TCP, passive_channel_.get());
  ASSERT_EQ(call(address_of(listener_)), "called");
  ASSERT_TRUE(becomes_readable(passive_channel_->fd));
  listener_.reset();
  const Event event = next_event(active_channel_.get());
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(name_of(event), "RDMA_CM_EVENT_REJECTED");
  EXPECT_EQ(event->status, 28) << "IB_CM_REJ_CONSUMER_DEFINED";
  EXPECT_FALSE(has_event(passive_channel_));
}

TEST_F(RdmaListenBacklog, DestroyedWithLookupsWaitingItsCallersAreRejected) {
  listener_ = make_listener(RDMA_PS_UDP, passive_channel_.get());
  ASSERT_EQ(call(address_of(listener_), RDMA_PS_UDP), "called");
  ASSERT_TRUE(becomes_readable(passive_channel_->fd));
  listener_.reset();
  const Event event = next_event(active_channel_.get());
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(name_of(event), "RDMA_CM_EVENT_UNREACHABLE");
  EXPECT_EQ(event->status, 2) << "IB_SIDR_REJECT";
}

TEST_F(RdmaListen, ASecondTimeIsMinusOneAndEinval) {
  errno = 0;
  EXPECT_EQ(rdma_listen(listener_.get(), 1), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(RdmaListen, AfterConnectingIsMinusOneAndEinval) {
  establish();
  errno = 0;
  EXPECT_EQ(rdma_listen(active_.get(), 1), -1);
  EXPECT_EQ(errno, EINVAL);
}

// rdma_listen in Linux (cma.c): an idle id is bound to the IPv4 wildcard and a port of the library's choice.
TEST_F(RdmaListen, WithoutAnAddressItBindsToAPortByItself) {
  const CmId id = make_id();
  ASSERT_EQ(rdma_listen(id.get(), 1), 0) << strerror(errno);
  EXPECT_NE(port_of(id), 0);
}

}  // namespace
}  // namespace verbena::pages
