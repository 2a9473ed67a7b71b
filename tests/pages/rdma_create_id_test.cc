// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_create_id(3), sentence by sentence.
//
// clang-format off
// | the page says | case |
// | --- | --- |
// | channel: events associated with the id will be reported on | WithAChannelEventsAreReportedThere |
// | may be NULL | WithoutAChannelTheCallReturnsWhenItIsDone |
// | context: user specified context associated with the id | TheContextIsTheUsers |
// | creates an identifier that is used to track communication information | everywhere |
// | returns 0 on success, or -1 on error; errno will be set | APortSpaceThatIsNoneIsMinusOneAndEinval |
// | requires explicitly binding to a specified RDMA device before communication can occur | ANewIdHasNoDevice |
// | most operations are asynchronous: reported through the event channel | WithAChannelEventsAreReportedThere |
// | channel NULL: synchronous operation; calls that result in an event will block | WithoutAChannelTheCallReturnsWhenItIsDone |
// | the event will be returned through the rdma_cm_id structure | TheEventIsInTheId |
// | and be available for access until another rdma_cm call is made | TheNextCallReplacesTheEvent |
// | must be released by calling rdma_destroy_id | DestroyingItReturnsZeroAndFreesThePort |
// | RDMA_PS_TCP: reliable, connection-oriented, message based | TcpIsReliableAndConnected |
// | RDMA_PS_UDP: unreliable, connectionless, datagram and multicast | UdpIsDatagrams |
// | RDMA_PS_IB: any IB services | IbIsThere |
// clang-format on
#include "async_test.h"

namespace verbena::pages {
namespace {

class RdmaCreateId : public IdTest {};

TEST_F(RdmaCreateId, WithAChannelEventsAreReportedThere) {
  const EventChannel channel = make_channel();
  const CmId listener = make_listener();
  const CmId id = make_id(RDMA_PS_TCP, channel.get());
  Address to = address_of(listener);
  ASSERT_EQ(rdma_resolve_addr(id.get(), nullptr, to.get(), kResolveMs), 0);
  const Event event = next_event(channel.get());
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(event->id, id.get());
  EXPECT_EQ(name_of(event), "RDMA_CM_EVENT_ADDR_RESOLVED");
}

TEST_F(RdmaCreateId, WithoutAChannelTheCallReturnsWhenItIsDone) {
  const CmId listener = make_listener();
  const CmId id = make_id();
  Address to = address_of(listener);
  ASSERT_EQ(rdma_resolve_addr(id.get(), nullptr, to.get(), kResolveMs), 0);
  EXPECT_NE(id->verbs, nullptr) << "the address is resolved";
}

TEST_F(RdmaCreateId, TheContextIsTheUsers) {
  int mine;
  EXPECT_EQ(make_id(RDMA_PS_TCP, nullptr, &mine)->context, &mine);
}

TEST_F(RdmaCreateId, APortSpaceThatIsNoneIsMinusOneAndEinval) {
  const EventChannel channel = make_channel();
  rdma_cm_id* id = nullptr;
  errno = 0;
  EXPECT_EQ(rdma_create_id(channel.get(), &id, nullptr, static_cast<rdma_port_space>(0x0999)), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(RdmaCreateId, ANewIdHasNoDevice) {
  const CmId id = make_id();
  EXPECT_EQ(id->verbs, nullptr);
  EXPECT_EQ(id->qp, nullptr);
  EXPECT_EQ(id->pd, nullptr);
}

TEST_F(RdmaCreateId, TheEventIsInTheId) {
  const CmId listener = make_listener();
  const CmId id = make_id();
  Address to = address_of(listener);
  ASSERT_EQ(rdma_resolve_addr(id.get(), nullptr, to.get(), kResolveMs), 0);
  ASSERT_NE(id->event, nullptr);
  EXPECT_EQ(id->event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(id->event->id, id.get());
}

TEST_F(RdmaCreateId, TheNextCallReplacesTheEvent) {
  const CmId listener = make_listener();
  const CmId id = make_resolved_id(listener);
  ASSERT_NE(id->event, nullptr);
  EXPECT_EQ(id->event->event, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

TEST_F(RdmaCreateId, DestroyingItReturnsZeroAndFreesThePort) {
  CmId id = make_bound_id();
  Address taken = address_of(id);
  const CmId other = make_id();
  ASSERT_NE(rdma_bind_addr(other.get(), taken.get()), 0);
  EXPECT_EQ(rdma_destroy_id(id.release()), 0);
  EXPECT_EQ(rdma_bind_addr(other.get(), taken.get()), 0) << strerror(errno);
}

TEST_F(RdmaCreateId, TcpIsReliableAndConnected) {
  const CmId id = make_id(RDMA_PS_TCP);
  EXPECT_EQ(id->ps, RDMA_PS_TCP);
  EXPECT_EQ(id->qp_type, IBV_QPT_RC);
}

TEST_F(RdmaCreateId, UdpIsDatagrams) {
  const CmId id = make_id(RDMA_PS_UDP);
  EXPECT_EQ(id->ps, RDMA_PS_UDP);
  EXPECT_EQ(id->qp_type, IBV_QPT_UD);
}

TEST_F(RdmaCreateId, IbIsThere) {
  const CmId id = make_id(RDMA_PS_IB);
  EXPECT_EQ(id->ps, RDMA_PS_IB);
  EXPECT_EQ(id->qp_type, IBV_QPT_RC);
}

}  // namespace
}  // namespace verbena::pages
