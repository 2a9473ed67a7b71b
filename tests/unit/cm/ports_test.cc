// SPDX-License-Identifier: BSD-2-Clause
//
// Ports, listeners and ids of a node, seen by one process. The rules are those of Linux' cma.c.
#include <errno.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "cm/id_table.h"
#include "unit/cm/addresses.h"
#include "unit/common/scoped_membership.h"
#include "unit/common/temporary_node.h"

namespace verbena::cm {
namespace {

class Ports : public ::testing::Test {
 protected:
  struct Id {
    IdHandle handle;
    IdFacts facts;
  };

  void SetUp() override {
    ASSERT_EQ(member_.error, 0);
    ASSERT_EQ(table_.open(node_.directory(), node_.path()), 0);
  }

  Id add(const Address& local, uint8_t flags = 0, PortSpace space = PortSpace::kTcp) {
    Id id{};
    id.facts.local = local;
    id.facts.space = space;
    // As cma.c: IPv4 is family-only unless the program says otherwise.
    id.facts.flags = static_cast<uint8_t>(flags | (local.family() == AF_INET ? kIdFamilyOnly : 0));
    id.facts.device = kNoDevice;
    id.facts.peer = kNoPeer;
    id.facts.number = ++number_;
    EXPECT_EQ(table_.add(owner(), id.facts, &id.handle), 0);
    return id;
  }
  Owner owner() const { return {member_.membership.slot(), member_.membership.generation()}; }
  int bind(Id& id) { return table_.bind(id.handle, &id.facts); }
  int listen(Id& id) { return table_.listen(id.handle, &id.facts, 5); }
  int bind_to(const Address& local, uint8_t flags = 0, PortSpace space = PortSpace::kTcp) {
    Id id = add(local, flags, space);
    return bind(id);
  }
  Id listener(const Address& local, uint8_t flags = 0, PortSpace space = PortSpace::kTcp) {
    Id id = add(local, flags, space);
    EXPECT_EQ(bind(id), 0);
    EXPECT_EQ(listen(id), 0);
    return id;
  }
  // The id of the listener; 0: there is none.
  uint32_t heard_by(const Address& destination, uint32_t device = kAnyDevice,
                    PortSpace space = PortSpace::kTcp) const {
    IdRecord found;
    return table_.find_listener(space, destination, device, &found) ? found.facts.number : 0;
  }
  size_t ids() const {
    size_t count = 0;
    table_.for_each_id([&](const IdRecord&) { ++count; });
    return count;
  }

  TemporaryNode node_;
  ScopedMembership member_{node_.path()};
  IdTable table_;
  uint32_t number_ = 0;
};

// ---- ids ----

TEST_F(Ports, AnIdIsReadAsItWasPublished) {
  Id id = add(ipv4("10.0.0.1"));
  id.facts.qpn = 77;
  id.facts.state = IdState::kConnecting;
  table_.publish(id.handle, id.facts);
  IdRecord record;
  ASSERT_TRUE(table_.read(id.handle, &record));
  EXPECT_EQ(record.facts.qpn, 77u);
  EXPECT_EQ(record.facts.state, IdState::kConnecting);
  EXPECT_EQ(record.owner, owner());
}

TEST_F(Ports, ARemovedIdIsNoMore) {
  const Id id = add(ipv4("10.0.0.1"));
  table_.remove(id.handle);
  IdRecord record;
  EXPECT_FALSE(table_.read(id.handle, &record));
  EXPECT_EQ(ids(), 0u);
}

TEST_F(Ports, AHandleOfAnEarlierUseReadsNothing) {
  const Id id = add(ipv4("10.0.0.1"));
  table_.remove(id.handle);
  for (uint32_t i = 0; i < kMaxNodeIds; ++i) {  // once round: the entry is in use again
    const Id other = add(ipv4("10.0.0.1"));
    const bool again = other.handle.index == id.handle.index;
    if (again) break;
    table_.remove(other.handle);
  }
  IdRecord record;
  EXPECT_FALSE(table_.read(id.handle, &record));
}

TEST_F(Ports, SixteenThousandIdsFitAndOneTooManyIsRefused) {
  std::vector<IdHandle> all(kMaxNodeIds);
  IdFacts facts{};
  for (IdHandle& id : all) ASSERT_EQ(table_.add(owner(), facts, &id), 0);
  static_assert(kMaxNodeIds >= 16384);
  IdHandle another;
  EXPECT_EQ(table_.add(owner(), facts, &another), ENOMEM);
}

// ---- binding ----

TEST_F(Ports, TheSameAddressAndPortIsInUse) {
  ASSERT_EQ(bind_to(ipv4("10.0.0.1", 7000)), 0);
  EXPECT_EQ(bind_to(ipv4("10.0.0.1", 7000)), EADDRINUSE);
}

TEST_F(Ports, AnotherAddressMayHaveThePortToo) {
  ASSERT_EQ(bind_to(ipv4("10.0.0.1", 7000)), 0);
  EXPECT_EQ(bind_to(ipv4("10.0.0.2", 7000)), 0);
}

TEST_F(Ports, AnotherPortIsFree) {
  ASSERT_EQ(bind_to(ipv4("10.0.0.1", 7000)), 0);
  EXPECT_EQ(bind_to(ipv4("10.0.0.1", 7001)), 0);
}

TEST_F(Ports, AnotherPortSpaceHasItsOwnPorts) {
  ASSERT_EQ(bind_to(ipv4("10.0.0.1", 7000)), 0);
  EXPECT_EQ(bind_to(ipv4("10.0.0.1", 7000), 0, PortSpace::kUdp), 0);
}

TEST_F(Ports, AWildcardIsInTheWayOfAnAddress) {
  ASSERT_EQ(bind_to(ipv4("0.0.0.0", 7000)), 0);
  EXPECT_EQ(bind_to(ipv4("10.0.0.1", 7000)), EADDRNOTAVAIL);
}

TEST_F(Ports, AnAddressIsInTheWayOfAWildcard) {
  ASSERT_EQ(bind_to(ipv4("10.0.0.1", 7000)), 0);
  EXPECT_EQ(bind_to(ipv4("0.0.0.0", 7000)), EADDRNOTAVAIL);
}

TEST_F(Ports, LoopbackCountsAsAWildcard) {
  ASSERT_EQ(bind_to(ipv4("127.0.0.1", 7000)), 0);
  EXPECT_EQ(bind_to(ipv4("10.0.0.1", 7000)), EADDRNOTAVAIL);
}

TEST_F(Ports, BothReusingShareAnAddress) {
  ASSERT_EQ(bind_to(ipv4("10.0.0.1", 7000), kIdReuse), 0);
  EXPECT_EQ(bind_to(ipv4("10.0.0.1", 7000), kIdReuse), 0);
}

TEST_F(Ports, ReusingIsRefusedWhenTheOtherDoesNot) {
  ASSERT_EQ(bind_to(ipv4("10.0.0.1", 7000)), 0);
  EXPECT_EQ(bind_to(ipv4("10.0.0.1", 7000), kIdReuse), EADDRINUSE);
}

TEST_F(Ports, AWildcardOfBothFamiliesIsInTheWayOfTheOther) {
  ASSERT_EQ(bind_to(ipv6("::", 7000)), 0);
  EXPECT_EQ(bind_to(ipv4("0.0.0.0", 7000)), EADDRNOTAVAIL);
}

TEST_F(Ports, WildcardsOfOneFamilyEachShareThePort) {
  ASSERT_EQ(bind_to(ipv6("::", 7000), kIdFamilyOnly), 0);
  EXPECT_EQ(bind_to(ipv4("0.0.0.0", 7000)), 0);
}

TEST_F(Ports, LinkLocalAddressesOfTwoLinksAreTwo) {
  ASSERT_EQ(bind_to(ipv6("fe80::1", 7000, 1)), 0);
  EXPECT_EQ(bind_to(ipv6("fe80::1", 7000, 2)), 0);
}

TEST_F(Ports, PrivilegedPortsNeedNoPrivilege) { EXPECT_EQ(bind_to(ipv4("10.0.0.1", 1)), 0); }

TEST_F(Ports, AnIdIsBoundOnce) {
  Id id = add(ipv4("10.0.0.1", 7000));
  ASSERT_EQ(bind(id), 0);
  EXPECT_EQ(bind(id), EINVAL);
}

TEST_F(Ports, ARefusedIdMayTryAnotherPort) {
  ASSERT_EQ(bind_to(ipv4("10.0.0.1", 7000)), 0);
  Id id = add(ipv4("10.0.0.1", 7000));
  ASSERT_EQ(bind(id), EADDRINUSE);
  set_port(&id.facts.local, 7001);
  EXPECT_EQ(bind(id), 0);
}

TEST_F(Ports, AnUnknownPortSpaceIsRefused) {
  EXPECT_EQ(bind_to(ipv4("10.0.0.1", 7000), 0, static_cast<PortSpace>(1)), EPROTONOSUPPORT);
}

TEST_F(Ports, AnUnboundPortIsFree) {
  Id id = add(ipv4("10.0.0.1", 7000));
  ASSERT_EQ(bind(id), 0);
  table_.unbind(id.handle, &id.facts);
  EXPECT_EQ(bind_to(ipv4("10.0.0.1", 7000)), 0);
}

TEST_F(Ports, ARemovedIdsPortIsFree) {
  Id id = add(ipv4("10.0.0.1", 7000));
  ASSERT_EQ(bind(id), 0);
  table_.remove(id.handle);
  EXPECT_EQ(bind_to(ipv4("10.0.0.1", 7000)), 0);
}

TEST_F(Ports, APortSharedByManyIsFreeWhenTheLastHasGone) {
  std::vector<Id> all;
  for (int i = 0; i < 50; ++i) all.push_back(add(ipv4("10.0.0.1", 7000), kIdReuse));
  for (Id& id : all) ASSERT_EQ(bind(id), 0);
  for (size_t i = 0; i < all.size(); ++i) {  // from the middle outwards
    EXPECT_EQ(bind_to(ipv4("10.0.0.1", 7000)), EADDRINUSE);
    table_.remove(all[(i + 25) % all.size()].handle);
  }
  EXPECT_EQ(bind_to(ipv4("10.0.0.1", 7000)), 0);
}

TEST_F(Ports, WhatIsPublishedLaterKeepsThePort) {
  Id id = add(ipv4("0.0.0.0", 0));
  ASSERT_EQ(bind(id), 0);
  const uint16_t port = port_of(id.facts.local);
  id.facts.local = ipv4("10.0.0.1", 1);
  table_.publish(id.handle, id.facts);
  IdRecord record;
  ASSERT_TRUE(table_.read(id.handle, &record));
  EXPECT_EQ(record.facts.local, ipv4("10.0.0.1", port));
}

// ---- chosen ports ----

TEST_F(Ports, PortZeroGivesOneOfTheMachinesRange) {
  Id id = add(ipv4("10.0.0.1"));
  ASSERT_EQ(bind(id), 0);
  EXPECT_GE(port_of(id.facts.local), ephemeral_ports().low);
  EXPECT_LE(port_of(id.facts.local), ephemeral_ports().high);
}

TEST_F(Ports, ChosenPortsAreDifferent) {
  std::set<uint16_t> ports;
  for (int i = 0; i < 500; ++i) {
    Id id = add(ipv4("10.0.0.1"));
    ASSERT_EQ(bind(id), 0);
    ports.insert(port_of(id.facts.local));
  }
  EXPECT_EQ(ports.size(), 500u);
}

TEST_F(Ports, ThePortJustGivenBackIsNotChosenNext) {
  for (int i = 0; i < 200; ++i) {
    Id first = add(ipv4("10.0.0.1"));
    ASSERT_EQ(bind(first), 0);
    table_.remove(first.handle);
    Id second = add(ipv4("10.0.0.1"));
    ASSERT_EQ(bind(second), 0);
    ASSERT_NE(port_of(first.facts.local), port_of(second.facts.local));
    table_.remove(second.handle);
  }
}

TEST_F(Ports, AChosenPortIsTakenForAnIdThatAsksForIt) {
  Id id = add(ipv4("10.0.0.1"));
  ASSERT_EQ(bind(id), 0);
  EXPECT_EQ(bind_to(id.facts.local), EADDRINUSE);
}

// ---- AF_IB ----

constexpr uint64_t kTcpSid = 0x1060000;
constexpr uint64_t kIbSid = 0x13f0000;

TEST_F(Ports, AnIbAddressOfTheTcpSpaceMeetsTheTcpPorts) {
  ASSERT_EQ(bind_to(ipv4("0.0.0.0", 7000)), 0);
  EXPECT_EQ(bind_to(ib("fe80::1", kTcpSid | 7000), 0, PortSpace::kIb), EADDRNOTAVAIL);
}

TEST_F(Ports, AnIbAddressWithoutPortGetsOneInItsServiceId) {
  Id id = add(ib("fe80::1", kIbSid, 0xffffffffffff0000), 0, PortSpace::kIb);
  ASSERT_EQ(bind(id), 0);
  EXPECT_EQ(be64toh(id.facts.local.ib().sid), kIbSid | port_of(id.facts.local));
  EXPECT_GE(port_of(id.facts.local), ephemeral_ports().low);
}

TEST_F(Ports, AnIbAddressOfNoSpaceIsRefused) {
  EXPECT_EQ(bind_to(ib("fe80::1", 0x990000 | 7000), 0, PortSpace::kIb), EPROTONOSUPPORT);
}

TEST_F(Ports, ATcpIdHasNoPlaceInTheIbSpace) {
  EXPECT_EQ(bind_to(ib("fe80::1", kIbSid | 7000), 0, PortSpace::kTcp), EPROTONOSUPPORT);
}

// ---- listening ----

TEST_F(Ports, AListenerHearsItsAddress) {
  const Id server = listener(ipv4("10.0.0.1", 7000));
  EXPECT_EQ(heard_by(ipv4("10.0.0.1", 7000)), server.facts.number);
}

TEST_F(Ports, ABoundIdThatDoesNotListenHearsNothing) {
  ASSERT_EQ(bind_to(ipv4("10.0.0.1", 7000)), 0);
  EXPECT_EQ(heard_by(ipv4("10.0.0.1", 7000)), 0u);
}

TEST_F(Ports, AListenerDoesNotHearAnotherAddress) {
  listener(ipv4("10.0.0.1", 7000));
  EXPECT_EQ(heard_by(ipv4("10.0.0.2", 7000)), 0u);
}

TEST_F(Ports, AListenerDoesNotHearAnotherSpace) {
  listener(ipv4("10.0.0.1", 7000));
  EXPECT_EQ(heard_by(ipv4("10.0.0.1", 7000), kAnyDevice, PortSpace::kUdp), 0u);
}

TEST_F(Ports, TwoListenersOnOnePortHearEachItsAddress) {
  const Id one = listener(ipv4("10.0.0.1", 7000));
  const Id two = listener(ipv4("10.0.0.2", 7000));
  EXPECT_EQ(heard_by(ipv4("10.0.0.1", 7000)), one.facts.number);
  EXPECT_EQ(heard_by(ipv4("10.0.0.2", 7000)), two.facts.number);
}

TEST_F(Ports, AWildcardListenerHearsEveryAddress) {
  const Id server = listener(ipv4("0.0.0.0", 7000));
  EXPECT_EQ(heard_by(ipv4("10.0.0.1", 7000)), server.facts.number);
}

TEST_F(Ports, ALoopbackListenerHearsEveryAddressAsInLinux) {
  const Id server = listener(ipv4("127.0.0.1", 7000));
  EXPECT_EQ(heard_by(ipv4("10.0.0.1", 7000)), server.facts.number);
}

TEST_F(Ports, AWildcardOfBothFamiliesHearsBoth) {
  const Id server = listener(ipv6("::", 7000));
  EXPECT_EQ(heard_by(ipv4("10.0.0.1", 7000)), server.facts.number);
}

TEST_F(Ports, AFamilyOnlyWildcardDoesNotHearTheOther) {
  listener(ipv6("::", 7000), kIdFamilyOnly);
  EXPECT_EQ(heard_by(ipv4("10.0.0.1", 7000)), 0u);
}

TEST_F(Ports, EachFamilysWildcardHearsItsOwn) {
  const Id six = listener(ipv6("::", 7000), kIdFamilyOnly);
  const Id four = listener(ipv4("0.0.0.0", 7000));
  EXPECT_EQ(heard_by(ipv4("10.0.0.1", 7000)), four.facts.number);
  EXPECT_EQ(heard_by(ipv6("2001:db8::1", 7000)), six.facts.number);
}

TEST_F(Ports, AnIbListenerHearsWhatComesForItsServiceId) {
  const Id server = listener(ib("::", kTcpSid | 7000), 0, PortSpace::kIb);
  EXPECT_EQ(heard_by(ipv4("10.0.0.1", 7000)), server.facts.number);
}

TEST_F(Ports, AListenerOfOneDeviceDoesNotHearAnother) {
  Id server = add(ipv4("10.0.0.1", 7000));
  server.facts.device = 1;
  ASSERT_EQ(bind(server), 0);
  ASSERT_EQ(listen(server), 0);
  EXPECT_EQ(heard_by(ipv4("10.0.0.1", 7000), 0), 0u);
  EXPECT_EQ(heard_by(ipv4("10.0.0.1", 7000), 1), server.facts.number);
}

TEST_F(Ports, ListeningWithoutAPortIsRefused) {
  Id id = add(ipv4("10.0.0.1", 7000));
  EXPECT_EQ(listen(id), EINVAL);
}

TEST_F(Ports, ListeningOnASharedPortIsRefused) {
  ASSERT_EQ(bind_to(ipv4("10.0.0.1", 7000), kIdReuse), 0);
  Id id = add(ipv4("10.0.0.1", 7000), kIdReuse);
  ASSERT_EQ(bind(id), 0);
  EXPECT_EQ(listen(id), EADDRINUSE);
  EXPECT_TRUE(id.facts.flags & kIdReuse);
}

TEST_F(Ports, AListenersPortIsSharedNoLonger) {
  listener(ipv4("10.0.0.1", 7000), kIdReuse);
  EXPECT_EQ(bind_to(ipv4("10.0.0.1", 7000), kIdReuse), EADDRINUSE);
}

TEST_F(Ports, AListenerThatStopsHearsNothingAndKeepsItsPort) {
  Id server = listener(ipv4("10.0.0.1", 7000));
  table_.stop_listening(server.handle, &server.facts);
  EXPECT_EQ(heard_by(ipv4("10.0.0.1", 7000)), 0u);
  EXPECT_EQ(bind_to(ipv4("10.0.0.1", 7000)), EADDRINUSE);
}

TEST_F(Ports, TheBacklogIsKnown) {
  const Id server = listener(ipv4("10.0.0.1", 7000));
  IdRecord record;
  ASSERT_TRUE(table_.read(server.handle, &record));
  EXPECT_EQ(record.backlog, 5u);
}

// ---- groups ----

std::vector<GroupRecord> groups_of(const IdTable& table) {
  std::vector<GroupRecord> all;
  table.for_each_group([&](const GroupRecord& record) { all.push_back(record); });
  return all;
}

TEST_F(Ports, AJoinedGroupIsShown) {
  const Id id = add(ipv4("10.0.0.1"));
  ASSERT_EQ(table_.join(id.handle, gid("ff02::7"), true), 0);
  const auto all = groups_of(table_);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].mgid, gid("ff02::7"));
  EXPECT_EQ(all[0].id, id.handle);
  EXPECT_TRUE(all[0].send_only);
}

TEST_F(Ports, AGroupThatWasLeftIsGoneAlone) {
  const Id id = add(ipv4("10.0.0.1"));
  ASSERT_EQ(table_.join(id.handle, gid("ff02::7"), false), 0);
  ASSERT_EQ(table_.join(id.handle, gid("ff02::8"), false), 0);
  table_.leave(id.handle, gid("ff02::7"));
  const auto all = groups_of(table_);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].mgid, gid("ff02::8"));
}

TEST_F(Ports, TheGroupsOfARemovedIdAreGone) {
  const Id id = add(ipv4("10.0.0.1"));
  ASSERT_EQ(table_.join(id.handle, gid("ff02::7"), false), 0);
  table_.remove(id.handle);
  EXPECT_TRUE(groups_of(table_).empty());
}

}  // namespace
}  // namespace verbena::cm
