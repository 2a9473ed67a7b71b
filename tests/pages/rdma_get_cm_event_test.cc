// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_get_cm_event(3), sentence by sentence.
//
// clang-format off
// | the page says | case |
// | --- | --- |
// | retrieves a communication event | clause rdma_get_cm_event.zero |
// | if no events are pending, by default, the call will block | clause rdma_get_cm_event.blocks |
// | returns 0 on success, or -1 on error; errno will be set | clause rdma_get_cm_event.nonblocking, WithoutAPlaceForItItIsMinusOneAndEinval |
// | can be changed by modifying the file descriptor | clause rdma_get_cm_event.nonblocking |
// | all events must be acknowledged by rdma_ack_cm_event; destruction will block until then | rdma_ack_cm_event |
// | id: the identifier associated with the event; CONNECT_REQUEST: a new one | clause rdma_accept.new-id |
// | listen_id: the corresponding listening identifier | clause rdma_accept.new-id |
// | event: the type | each type below |
// | status: zero if successful, else a negative errno or a transport specific value | clause rdma_get_cm_event.status-0; rdma_connect, rdma_reject |
// | param: conn or ud; the data of either | rdma_connect, rdma_accept, rdma_join_multicast |
// | private_data: deallocated when calling rdma_ack_cm_event | not testable: it may not be looked at |
// | ADDR_RESOLVED, ROUTE_RESOLVED | clause rdma_resolve_addr.event, rdma_resolve_route.event |
// | ADDR_ERROR | rdma_resolve_addr |
// | ROUTE_ERROR | unit.Families.AGidThatNobodyHasHasNoRouteOnInfiniBand: on RoCE a route is not asked for |
// | CONNECT_REQUEST, ESTABLISHED | rdma_accept |
// | CONNECT_RESPONSE: only on ids without a QP | clause rdma_establish.response; rdma_establish |
// | CONNECT_ERROR: may be generated on the active or passive side | clause rdma_get_cm_event.conn-error |
// | UNREACHABLE, REJECTED | rdma_reject, rdma_connect |
// | DISCONNECTED | rdma_disconnect |
// | DEVICE_REMOVAL, ADDR_CHANGE, MULTICAST_ERROR | unit/cm/device_events_test, programs.mckey.device_events: they take `verbena event` |
// | MULTICAST_JOIN | rdma_join_multicast |
// | TIMEWAIT_EXIT: the QP is ready to be re-used | AfterTheTimewaitThereIsAnEvent |
// clang-format on
#include "async_test.h"

namespace verbena::pages {
namespace {

class RdmaGetCmEvent : public AsyncTest {};

TEST_F(RdmaGetCmEvent, WithoutAPlaceForItItIsMinusOneAndEinval) {
  errno = 0;
  EXPECT_EQ(rdma_get_cm_event(active_channel_.get(), nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
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
