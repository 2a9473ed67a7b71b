// SPDX-License-Identifier: BSD-2-Clause
//
// Fixture for tests of multicast groups.
#pragma once

#include <netinet/in.h>

#include <chrono>
#include <cstring>

#include "support/pair.h"

namespace conformance {

class MulticastTest : public PairTest {
 protected:
  using Clock = std::chrono::steady_clock;
  static constexpr uint16_t lid = 0xc05a;
  static constexpr uint32_t room = 256;  // of a receive request

  Pair& ends() {
    if (device().attributes().max_mcast_grp == 0) throw NotClaimed{"max_mcast_grp is 0"};
    PairSpec spec;
    spec.both.type = IBV_QPT_UD;
    spec.is_connected = false;
    return pair(spec);
  }
  Endpoint& near() { return ends().near; }
  Endpoint& far() { return ends().far; }
  // One more end beside near() or far(), in RTS.
  Endpoint one_more(Link& link) {
    wire::MakeEnd spec;
    spec.type = IBV_QPT_UD;
    Endpoint end(link, spec);
    must_connect(end, near().facts());
    return end;
  }

  // A group of the family of the port's GID: datagrams of RoCE v2 are IPv4 where that one is, and so is their
  // group's address (Linux drivers/infiniband/core/cma.c, cma_iboe_set_mgid()). Of a small scope, so that
  // nothing leaves the machine's own network.
  ibv_gid group(uint8_t number) {
    ibv_gid gid = {};
    if (IN6_IS_ADDR_V4MAPPED(reinterpret_cast<const in6_addr*>(device().gid().raw)) != 0) {
      const uint8_t address[] = {0xff, 0xff, 239, 255, 0x5a, number};
      std::memcpy(&gid.raw[10], address, sizeof address);
    } else {
      gid.raw[0] = 0xff;
      gid.raw[1] = 0x12;
      gid.raw[14] = 0x5a;
      gid.raw[15] = number;
    }
    return gid;
  }
  ibv_gid own_gid() { return device().gid(); }

  // `end`, which is in RTS, sends to the group from now on.
  void lead_to(Endpoint& end, const ibv_gid& to) {
    EndFacts all;
    all.qpn = all.receiving_qpn = 0xffffff;
    all.lid = lid;
    std::copy(std::begin(to.raw), std::end(to.raw), all.gid.begin());
    all.mtu = end.facts().mtu;
    must_connect(end, all);
  }
  void must_connect(Endpoint& end, const EndFacts& other) {
    const int error = end.connect(other);
    if (error == 0) return;
    if (&end == &far() && !topology().is_loopback())
      throw NotTested{"the far end cannot be brought up: " + errno_text(error)};
    throw Deviation{"to bring up an end; expected: 0; seen: " + errno_text(error), Where::current()};
  }
  // A member at the far end, whose device may have no groups.
  void attach_far(Endpoint& member, const ibv_gid& to) {
    const int error = member.attach(to, lid);
    if (error == 0) return;
    if (!topology().is_loopback()) throw NotTested{"the far end joins no group: " + errno_text(error)};
    throw Deviation{"ibv_attach_mcast; expected: 0; seen: " + errno_text(error), Where::current()};
  }
  static void receives(Endpoint& end, uint64_t id = 1) { ASSERT_EQ(end.receive(0, room, id), 0); }
  static void send(Endpoint& from, uint32_t bytes = 8) {
    ASSERT_EQ(from.post(send_request({{1000, bytes}})), 0);
    EXPECT_EQ(from.completion().status, IBV_WC_SUCCESS);
  }
  // Sends until `to` has received a message; returns its completion. In a network of several machines it
  // takes a while until all of them know a member. `to` has received nothing else then. A fabric delivers to
  // a port after a join (ibv_attach_mcast(3), NOTES), which the connection manager's chapter has:
  // InfiniBand's subnet administrator, and switches between two machines that listen to IGMP and MLD.
  Completion send_until_received(Endpoint& from, Endpoint& to) {
    const auto deadline = Clock::now() + scaled(std::chrono::seconds(5));
    do {
      send(from);
      if (const auto list = to.poll(1, scaled(std::chrono::milliseconds(200)), true); !list.empty())
        return list.front();
    } while (Clock::now() < deadline);
    if (device().port().link_layer == IBV_LINK_LAYER_INFINIBAND)
      throw NotTested{"nothing is received without a join to the subnet administrator"};
    if (!options().peer.empty())
      throw NotTested{"nothing is received from a peer without a join (IGMP, MLD)"};
    throw Deviation{"expected: a member receives what is sent to its group; seen: nothing", Where::current()};
  }
};

}  // namespace conformance
