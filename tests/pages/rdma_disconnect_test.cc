// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_disconnect(3), sentence by sentence.
//
// clang-format off
// | the page says | case |
// | --- | --- |
// | disconnects a connection | clause rdma_disconnect.event |
// | and transitions any associated QP to the error state | clause rdma_disconnect.flush |
// | which will flush any posted work requests to the completion queue | clause rdma_disconnect.flush |
// | should be called by both the client and server side | clause rdma_disconnect.event |
// | RDMA_CM_EVENT_DISCONNECTED will be generated on both sides | clause rdma_disconnect.event, AtTheSameTimeBothGetTheEvent |
// | returns 0 on success, or -1 on error; errno will be set | BeforeTheConnectionItIsMinusOneAndEinval, OnAnUnboundIdItIsMinusOneAndEinval |
// | (not only called by programs) | AProcessThatIsKilledIsDisconnected, AnIdThatIsDestroyedIsDisconnected |
// clang-format on
#include "async_test.h"
#include "peer.h"

namespace verbena::pages {
namespace {

class RdmaDisconnect : public AsyncTest {};

TEST_F(RdmaDisconnect, AtTheSameTimeBothGetTheEvent) {
  establish();
  ASSERT_EQ(rdma_disconnect(active_.get()), 0);
  ASSERT_EQ(rdma_disconnect(passive_.get()), 0) << strerror(errno);
  EXPECT_EQ(next_name(active_channel_.get()), "RDMA_CM_EVENT_DISCONNECTED");
  EXPECT_EQ(next_name(passive_channel_.get()), "RDMA_CM_EVENT_DISCONNECTED");
}

TEST_F(RdmaDisconnect, BeforeTheConnectionItIsMinusOneAndEinval) {
  const CmId id = make_bound_id(RDMA_PS_TCP, active_channel_.get());
  errno = 0;
  EXPECT_EQ(rdma_disconnect(id.get()), -1);
  EXPECT_EQ(errno, EINVAL);
}

// ucma_shutdown (cma.c, 44.0)
TEST_F(RdmaDisconnect, OnAnUnboundIdItIsMinusOneAndEinval) {
  const CmId id = make_id();
  errno = 0;
  EXPECT_EQ(rdma_disconnect(id.get()), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(RdmaDisconnect, AnIdThatIsDestroyedIsDisconnected) {
  establish();
  active_.reset();
  EXPECT_EQ(next_name(passive_channel_.get()), "RDMA_CM_EVENT_DISCONNECTED");
}

TEST_F(RdmaDisconnect, AProcessThatIsKilledIsDisconnected) {
  Peer peer("memory", host_);
  active_ = make_id(RDMA_PS_TCP, active_channel_.get());
  Address to(host_, peer.port());
  ASSERT_EQ(rdma_resolve_addr(active_.get(), nullptr, to.get(), kResolveMs), 0);
  ASSERT_EQ(next_name(active_channel_.get()), "RDMA_CM_EVENT_ADDR_RESOLVED");
  ASSERT_EQ(rdma_resolve_route(active_.get(), kResolveMs), 0);
  ASSERT_EQ(next_name(active_channel_.get()), "RDMA_CM_EVENT_ROUTE_RESOLVED");
  create_qp(active_);
  rdma_conn_param parameters = parameters_with();
  ASSERT_EQ(rdma_connect(active_.get(), &parameters), 0) << strerror(errno);
  ASSERT_EQ(next_name(active_channel_.get()), "RDMA_CM_EVENT_ESTABLISHED");
  peer.kill();
  EXPECT_EQ(next_name(active_channel_.get()), "RDMA_CM_EVENT_DISCONNECTED");
}

}  // namespace
}  // namespace verbena::pages
