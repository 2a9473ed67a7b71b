// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_create_id(3), sentence by sentence.
//
// clang-format off
// | the page says | case |
// | --- | --- |
// | channel: events associated with the id will be reported on | clause rdma_resolve_addr.event, rdma_get_cm_event.zero |
// | may be NULL | clause rdma_create_id.synchronous |
// | context: user specified context associated with the id | clause rdma_create_id.zero |
// | creates an identifier that is used to track communication information | everywhere |
// | returns 0 on success, or -1 on error; errno will be set | APortSpaceThatIsNoneIsMinusOneAndEinval |
// | requires explicitly binding to a specified RDMA device before communication can occur | ANewIdHasNoDevice |
// | most operations are asynchronous: reported through the event channel | clause rdma_resolve_addr.event, rdma_get_cm_event.zero |
// | channel NULL: synchronous operation; calls that result in an event will block | clause rdma_create_id.synchronous |
// | the event will be returned through the rdma_cm_id structure | clause rdma_create_id.event-kept |
// | and be available for access until another rdma_cm call is made | clause rdma_create_id.event-kept |
// | must be released by calling rdma_destroy_id | clause rdma_destroy_id.zero, rdma_bind_addr.in-use |
// | RDMA_PS_TCP: reliable, connection-oriented, message based | TcpIsReliableAndConnected |
// | RDMA_PS_UDP: unreliable, connectionless, datagram and multicast | UdpIsDatagrams |
// | RDMA_PS_IB: any IB services | IbIsThere |
// clang-format on
#include "async_test.h"

namespace verbena::pages {
namespace {

class RdmaCreateId : public IdTest {};

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
