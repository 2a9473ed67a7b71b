// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_get_src_port(3), rdma_get_dst_port(3), rdma_get_local_addr(3), rdma_get_peer_addr(3),
// rdma_event_str(3), rdma_get_devices(3) and rdma_create_event_channel(3), sentence by sentence.
//
// clang-format off
// | the pages say | case |
// | --- | --- |
// | the local port number; 0 if the id is not bound | TheSourcePortIsZeroUntilTheIdIsBound |
// | the remote port number; 0 if the id is not connected | TheDestinationPortIsZeroUntilThereIsADestination |
// | the local IP address; all zeroes if not bound | TheLocalAddressIsZeroUntilTheIdIsBound |
// | the remote IP address; all zeroes if not connected | ThePeerAddressIsZeroUntilThereIsAPeer |
// | (of the passive side) | ThePassiveSideKnowsBothEnds |
// | a string representation of an event | EveryEventHasAName |
// | a NULL-terminated array of opened devices, and their number | TheDevicesAreOpened |
// | devices remain opened while the librdmacm is loaded | TheIdsAreOnTheseDevices |
// | events are reported through channels; each is mapped to a file descriptor | TheChannelIsADescriptorToPoll |
// clang-format on
#include "async_test.h"

namespace verbena::pages {
namespace {

class RdmaGetSrcPort : public AsyncTest {};

TEST_F(RdmaGetSrcPort, TheSourcePortIsZeroUntilTheIdIsBound) {
  const CmId id = make_id();
  EXPECT_EQ(rdma_get_src_port(id.get()), 0);
  ASSERT_EQ(rdma_bind_addr(id.get(), address_.get()), 0);
  EXPECT_NE(rdma_get_src_port(id.get()), 0);
}

TEST_F(RdmaGetSrcPort, TheDestinationPortIsZeroUntilThereIsADestination) {
  const CmId id = make_id();
  EXPECT_EQ(rdma_get_dst_port(id.get()), 0);
  resolve(id, listener_);
  EXPECT_EQ(ntohs(rdma_get_dst_port(id.get())), port_of(listener_));
}

TEST_F(RdmaGetSrcPort, TheLocalAddressIsZeroUntilTheIdIsBound) {
  const CmId id = make_id();
  const sockaddr_storage none = {};
  EXPECT_EQ(memcmp(rdma_get_local_addr(id.get()), &none, sizeof(none)), 0);
  ASSERT_EQ(rdma_bind_addr(id.get(), address_.get()), 0);
  EXPECT_EQ(text_of(rdma_get_local_addr(id.get())), host_);
}

TEST_F(RdmaGetSrcPort, ThePeerAddressIsZeroUntilThereIsAPeer) {
  const CmId id = make_id();
  const sockaddr_storage none = {};
  EXPECT_EQ(memcmp(rdma_get_peer_addr(id.get()), &none, sizeof(none)), 0);
  resolve(id, listener_);
  EXPECT_EQ(text_of(rdma_get_peer_addr(id.get())), host_);
}

TEST_F(RdmaGetSrcPort, ThePassiveSideKnowsBothEnds) {
  establish();
  EXPECT_EQ(text_of(rdma_get_local_addr(passive_.get())), host_);
  EXPECT_EQ(text_of(rdma_get_peer_addr(passive_.get())), host_);
  EXPECT_EQ(rdma_get_src_port(passive_.get()), rdma_get_dst_port(active_.get()));
  EXPECT_EQ(rdma_get_dst_port(passive_.get()), rdma_get_src_port(active_.get()));
}

TEST_F(RdmaGetSrcPort, EveryEventHasAName) {
  EXPECT_STREQ(rdma_event_str(RDMA_CM_EVENT_ADDR_RESOLVED), "RDMA_CM_EVENT_ADDR_RESOLVED");
  EXPECT_STREQ(rdma_event_str(RDMA_CM_EVENT_TIMEWAIT_EXIT), "RDMA_CM_EVENT_TIMEWAIT_EXIT");
  EXPECT_STREQ(rdma_event_str(static_cast<rdma_cm_event_type>(99)), "UNKNOWN EVENT");
}

TEST_F(RdmaGetSrcPort, TheDevicesAreOpened) {
  int count = 0;
  ibv_context** devices = rdma_get_devices(&count);
  ASSERT_NE(devices, nullptr);
  ASSERT_GE(count, 1);
  EXPECT_EQ(devices[count], nullptr);
  ibv_device_attr attr = {};
  EXPECT_EQ(ibv_query_device(devices[0], &attr), 0);
  rdma_free_devices(devices);
}

TEST_F(RdmaGetSrcPort, TheIdsAreOnTheseDevices) {
  ibv_context** devices = rdma_get_devices(nullptr);
  ASSERT_NE(devices, nullptr);
  EXPECT_EQ(listener_->verbs, devices[0]);
  rdma_free_devices(devices);
}

TEST_F(RdmaGetSrcPort, TheChannelIsADescriptorToPoll) {
  EXPECT_FALSE(has_event(active_channel_));
  active_ = make_id(RDMA_PS_TCP, active_channel_.get());
  Address to = address_of(listener_);
  ASSERT_EQ(rdma_resolve_addr(active_.get(), nullptr, to.get(), kResolveMs), 0);
  EXPECT_TRUE(becomes_readable(active_channel_->fd));
}

}  // namespace
}  // namespace verbena::pages
