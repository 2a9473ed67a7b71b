// SPDX-License-Identifier: BSD-2-Clause
//
// Connections between addresses of each family, on each link layer, of connected types of queue pair.
#include <errno.h>
#include <gtest/gtest.h>

#include "cm/addresses.h"
#include "unit/cm/scene.h"
#include "unit/common/temporary_node.h"

namespace verbena::cm {
namespace {

Address ipv6_loopback(uint16_t port) {
  sockaddr_in6 in{};
  in.sin6_family = AF_INET6;
  in.sin6_addr = in6addr_loopback;
  in.sin6_port = htons(port);
  return Address::of(in);
}

Address ipv6_wildcard(uint16_t port) {
  Address any = wildcard_like(ipv6_loopback(0));
  set_port(&any, port);
  return any;
}

Address ipv4_loopback(uint16_t port) { return Address::of(Ip("127.0.0.1", port).in); }

Address of_gid(const Gid& gid, uint16_t port, PortSpace space = PortSpace::kTcp) {
  return ib_address_of(gid, (static_cast<uint64_t>(space) << 16) + port, 0xffff);
}
Address of_first_gid(const TemporaryNode& node, uint16_t port, PortSpace space = PortSpace::kTcp) {
  return of_gid(node.directory().devices().devices[0].ports[0].gids[0].raw, port, space);
}

struct Scene {
  TemporaryNode node;
  ServiceHolder service;
  Inbox passive_inbox, active_inbox;
  OwnedId listener, active, passive;

  explicit Scene(LinkLayer link_layer = LinkLayer::kEthernet)
      : node({.count = 1, .link_layer = link_layer}) {}

  // From listening to the request. `private_data`: how much of it the passive side sees.
  void connect_to(const Address& listen_on, const Address& destination, size_t private_data, PortSpace space,
                  ibv_qp_type passive_type, ibv_qp_type active_type) {
    listener = make_id(service, passive_inbox, space, passive_type);
    ASSERT_EQ(bind_address(listener.get(), listen_on.get()), 0);
    ASSERT_EQ(listen(listener.get(), 4), 0);
    active = make_id(service, active_inbox, space, active_type);
    ASSERT_EQ(resolve_address(active.get(), nullptr, destination.get(), 1000), 0);
    ASSERT_TRUE(next_is(active_inbox, EventType::kAddressResolved));
    ASSERT_EQ(resolve_route(active.get(), 1000), 0);
    ASSERT_TRUE(next_is(active_inbox, EventType::kRouteResolved));
    ASSERT_EQ(connect(active.get(), parameters(0x11, "hello"), {}), 0);
    Event event;
    ASSERT_TRUE(next_is(passive_inbox, EventType::kConnectRequest, 0, &event));
    passive.reset(event.id);
    EXPECT_EQ(event.connection.private_data.length, private_data);
    EXPECT_STREQ(reinterpret_cast<const char*>(event.connection.private_data.bytes), "hello");
  }
  void establish() {
    const ConnectionParameters given = parameters(0x22);
    ASSERT_EQ(accept(passive.get(), &given, {}), 0);
    Event event;
    ASSERT_TRUE(next_is(active_inbox, EventType::kConnectResponse, 0, &event));
    EXPECT_EQ(event.connection.qp_number, 0x22u);
    ASSERT_EQ(accept(active.get(), nullptr, {}), 0);
    ASSERT_TRUE(next_is(passive_inbox, EventType::kEstablished));
  }
};

TEST(Families, Ipv4OnInfiniBand) {
  Scene scene(LinkLayer::kInfiniband);
  scene.connect_to(Address::of(Ip("0.0.0.0", 7471).in), ipv4_loopback(7471), 56, PortSpace::kTcp, IBV_QPT_RC,
                   IBV_QPT_RC);
  scene.establish();
  Route route;
  query(scene.active.get(), &route);
  ASSERT_EQ(route.path_count, 1u);
  EXPECT_NE(route.paths[0].dlid, 0);
}

TEST(Families, Ipv6) {
  Scene scene;
  scene.connect_to(ipv6_wildcard(7471), ipv6_loopback(7471), 56, PortSpace::kTcp, IBV_QPT_RC, IBV_QPT_RC);
  scene.establish();
}

TEST(Families, AnIpv6WildcardTakesIpv4) {
  Scene scene;
  scene.connect_to(ipv6_wildcard(7471), ipv4_loopback(7471), 56, PortSpace::kTcp, IBV_QPT_RC, IBV_QPT_RC);
}

TEST(Families, InfiniBandAddresses) {
  for (const LinkLayer link_layer : {LinkLayer::kEthernet, LinkLayer::kInfiniband}) {
    Scene scene(link_layer);
    const Address there = of_first_gid(scene.node, 7471);
    scene.connect_to(there, there, 92, PortSpace::kTcp, IBV_QPT_RC, IBV_QPT_RC);
    scene.establish();
  }
}

// A lookup has no CMA header in its 216 bytes (IB_CM_SIDR_REQ_PRIVATE_DATA_SIZE).
TEST(Families, InfiniBandAddressesOfDatagrams) {
  for (const LinkLayer link_layer : {LinkLayer::kEthernet, LinkLayer::kInfiniband}) {
    Scene scene(link_layer);
    const Address there = of_first_gid(scene.node, 7471, PortSpace::kUdp);
    scene.listener = make_id(scene.service, scene.passive_inbox, PortSpace::kUdp, IBV_QPT_UD);
    ASSERT_EQ(bind_address(scene.listener.get(), there.get()), 0);
    ASSERT_EQ(listen(scene.listener.get(), 4), 0);
    scene.active = make_id(scene.service, scene.active_inbox, PortSpace::kUdp, IBV_QPT_UD);
    ASSERT_EQ(resolve_address(scene.active.get(), nullptr, there.get(), 1000), 0);
    ASSERT_TRUE(next_is(scene.active_inbox, EventType::kAddressResolved));
    ASSERT_EQ(resolve_route(scene.active.get(), 1000), 0);
    ASSERT_TRUE(next_is(scene.active_inbox, EventType::kRouteResolved));
    ConnectionParameters given = parameters(0x11);
    for (size_t i = 0; i < 216; ++i) given.private_data.bytes[i] = static_cast<uint8_t>(i + 1);
    given.private_data.length = 217;
    ASSERT_EQ(connect(scene.active.get(), given, {}), EINVAL);
    given.private_data.length = 216;
    ASSERT_EQ(connect(scene.active.get(), given, {}), 0);
    Event event;
    ASSERT_TRUE(next_is(scene.passive_inbox, EventType::kConnectRequest, 0, &event));
    scene.passive.reset(event.id);
    EXPECT_EQ(event.datagram.private_data.length, 216);
    EXPECT_EQ(memcmp(event.datagram.private_data.bytes, given.private_data.bytes, 216), 0);
    given.private_data.length = 137;
    EXPECT_EQ(accept(scene.passive.get(), &given, {}), EINVAL);  // as rdma_accept: and it is rejected
    EXPECT_TRUE(next_is(scene.active_inbox, EventType::kUnreachable, 2, &event));
    EXPECT_EQ(event.datagram.private_data.length, 136);
  }
}

// AF_IB resolves no address (cma_resolve_ib_addr); the subnet administrator has no path to it.
TEST(Families, AGidThatNobodyHasHasNoRouteOnInfiniBand) {
  const Scene scene(LinkLayer::kInfiniband);
  Inbox inbox;
  const OwnedId id = make_id(scene.service, inbox);
  Gid nobody = scene.node.directory().devices().devices[0].ports[0].gids[0].raw;
  nobody[15] ^= 0x55;
  ASSERT_EQ(resolve_address(id.get(), nullptr, of_gid(nobody, 7471).get(), 1000), 0);
  ASSERT_TRUE(next_is(inbox, EventType::kAddressResolved));
  for (int i = 0; i < 2; ++i) {  // it may be tried again
    ASSERT_EQ(resolve_route(id.get(), 1000), 0);
    EXPECT_TRUE(next_is(inbox, EventType::kRouteError, -EINVAL));
  }
  EXPECT_EQ(connect(id.get(), parameters(1), {}), EINVAL);
}

// cma_acquire_dev_by_src_ip: on Ethernet there is no IPoIB.
TEST(Families, SpaceIpoibIsOfInfiniBandAlone) {
  for (const LinkLayer link_layer : {LinkLayer::kEthernet, LinkLayer::kInfiniband}) {
    const int refused = link_layer == LinkLayer::kEthernet ? EINVAL : 0;
    Scene scene(link_layer);
    Address own;
    ASSERT_EQ(choose_source(scene.node.directory().devices(), Address::of(Ip("203.0.113.7").in), &own), 0);
    const OwnedId bound = make_id(scene.service, scene.passive_inbox, PortSpace::kIpoib, IBV_QPT_UD);
    EXPECT_EQ(bind_address(bound.get(), own.get()), refused);
    const OwnedId resolved = make_id(scene.service, scene.active_inbox, PortSpace::kIpoib, IBV_QPT_UD);
    ASSERT_EQ(resolve_address(resolved.get(), nullptr, own.get(), 1000), 0);
    EXPECT_TRUE(next_is(scene.active_inbox,
                        refused != 0 ? EventType::kAddressError : EventType::kAddressResolved, -refused));
  }
}

TEST(Families, SpaceIbWithIpAddresses) {
  Scene scene;
  scene.connect_to(Address::of(Ip("0.0.0.0", 7471).in), ipv4_loopback(7471), 56, PortSpace::kIb, IBV_QPT_RC,
                   IBV_QPT_RC);
  scene.establish();
}

TEST(Types, ExtendedReliableConnections) {
  Scene scene;
  scene.connect_to(Address::of(Ip("0.0.0.0", 7471).in), ipv4_loopback(7471), 56, PortSpace::kIb,
                   IBV_QPT_XRC_RECV, IBV_QPT_XRC_SEND);
  scene.establish();
}

TEST(Types, UnreliableConnections) {
  Scene scene;
  scene.connect_to(Address::of(Ip("0.0.0.0", 7471).in), ipv4_loopback(7471), 56, PortSpace::kIb, IBV_QPT_UC,
                   IBV_QPT_UC);
  scene.establish();
}

TEST(Types, OfAnotherKindAreRejected) {
  Scene scene;
  scene.listener = make_id(scene.service, scene.passive_inbox, PortSpace::kIb, IBV_QPT_UC);
  ASSERT_EQ(bind_address(scene.listener.get(), Ip("0.0.0.0", 7471)), 0);
  ASSERT_EQ(listen(scene.listener.get(), 4), 0);
  scene.active = make_resolved(scene.service, scene.active_inbox, 7471, PortSpace::kIb);
  ASSERT_EQ(connect(scene.active.get(), parameters(1), {}), 0);
  EXPECT_TRUE(next_is(scene.active_inbox, EventType::kRejected, 28));
}

}  // namespace
}  // namespace verbena::cm
