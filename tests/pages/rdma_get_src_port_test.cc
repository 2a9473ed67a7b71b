// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_get_src_port(3), rdma_get_dst_port(3), rdma_get_local_addr(3), rdma_get_peer_addr(3),
// rdma_event_str(3), rdma_get_devices(3) and rdma_create_event_channel(3), sentence by sentence.
//
// clang-format off
// | the pages say | case |
// | --- | --- |
// | the local port number; 0 if the id is not bound | clause rdma_get_src_port.unbound, rdma_bind_addr.port-0 |
// | the remote port number; 0 if the id is not connected | clause rdma_get_dst_port.unconnected, rdma_resolve_addr.event |
// | the local IP address; all zeroes if not bound | clause rdma_get_local_addr.unbound, rdma_get_local_addr.bound |
// | the remote IP address; all zeroes if not connected | clause rdma_get_peer_addr.unconnected, rdma_resolve_addr.event |
// | (of the passive side) | clause rdma_get_peer_addr.connected, rdma_get_dst_port.connected |
// | a string representation of an event | EveryEventHasAName |
// | a NULL-terminated array of opened devices, and their number | clause rdma_get_devices.list |
// | devices remain opened while the librdmacm is loaded | TheIdsAreOnTheseDevices |
// | events are reported through channels; each is mapped to a file descriptor | clause rdma_create_event_channel.fd |
// clang-format on
#include "async_test.h"

namespace verbena::pages {
namespace {

class RdmaGetSrcPort : public AsyncTest {};

TEST_F(RdmaGetSrcPort, EveryEventHasAName) {
  EXPECT_STREQ(rdma_event_str(RDMA_CM_EVENT_ADDR_RESOLVED), "RDMA_CM_EVENT_ADDR_RESOLVED");
  EXPECT_STREQ(rdma_event_str(RDMA_CM_EVENT_TIMEWAIT_EXIT), "RDMA_CM_EVENT_TIMEWAIT_EXIT");
  EXPECT_STREQ(rdma_event_str(static_cast<rdma_cm_event_type>(99)), "UNKNOWN EVENT");
}

TEST_F(RdmaGetSrcPort, TheIdsAreOnTheseDevices) {
  ibv_context** devices = rdma_get_devices(nullptr);
  ASSERT_NE(devices, nullptr);
  EXPECT_EQ(listener_->verbs, devices[0]);
  rdma_free_devices(devices);
}

}  // namespace
}  // namespace verbena::pages
