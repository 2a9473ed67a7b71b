// SPDX-License-Identifier: BSD-2-Clause
#include "cm/port_rules.h"

#include <errno.h>
#include <gtest/gtest.h>

#include "unit/cm/addresses.h"

namespace verbena::cm {
namespace {

IdFacts id_at(const Address& local, uint8_t flags = 0) {
  IdFacts facts{};
  facts.local = local;
  facts.space = PortSpace::kTcp;
  facts.flags = flags;
  facts.device = kNoDevice;
  return facts;
}

IdFacts talking(const Address& local, const Address& remote) {
  IdFacts facts = id_at(local);
  facts.remote = remote;
  return facts;
}

TEST(PortRules, AddressesOfTwoFamiliesDoNotMeet) {
  EXPECT_EQ(conflict(id_at(ipv4("10.0.0.1", 1)), id_at(ipv6("2001:db8::1", 1)), false), 0);
}

TEST(PortRules, ReusingMeetsAListener) {
  const IdFacts mine = id_at(ipv4("10.0.0.1", 1), kIdReuse);
  const IdFacts listener = id_at(ipv4("10.0.0.1", 1), kIdReuse | kIdListening);
  EXPECT_EQ(conflict(mine, listener, true), EADDRINUSE);
}

TEST(PortRules, AChosenPortIsSharedWithOneThatTalksToAnotherHost) {
  const IdFacts mine = talking(ipv4("10.0.0.1"), ipv4("10.0.0.8", 9));
  EXPECT_TRUE(may_share_chosen_port(mine, talking(ipv4("10.0.0.1", 1), ipv4("10.0.0.9", 9))));
}

TEST(PortRules, AChosenPortIsSharedWithOneThatTalksToAnotherPort) {
  const IdFacts mine = talking(ipv4("10.0.0.1"), ipv4("10.0.0.8", 9));
  EXPECT_TRUE(may_share_chosen_port(mine, talking(ipv4("10.0.0.1", 1), ipv4("10.0.0.8", 10))));
}

TEST(PortRules, AChosenPortIsSharedWithOneThatHasAnotherAddress) {
  const IdFacts mine = talking(ipv4("10.0.0.1"), ipv4("10.0.0.8", 9));
  EXPECT_TRUE(may_share_chosen_port(mine, talking(ipv4("10.0.0.2", 1), ipv4("10.0.0.8", 9))));
}

TEST(PortRules, AChosenPortIsNotSharedWithOneThatTalksToTheSame) {
  const IdFacts mine = talking(ipv4("10.0.0.1"), ipv4("10.0.0.8", 9));
  EXPECT_FALSE(may_share_chosen_port(mine, talking(ipv4("10.0.0.1", 1), ipv4("10.0.0.8", 9))));
}

TEST(PortRules, AChosenPortIsNotSharedWithOneThatTalksToNone) {
  const IdFacts mine = talking(ipv4("10.0.0.1"), ipv4("10.0.0.8", 9));
  EXPECT_FALSE(may_share_chosen_port(mine, id_at(ipv4("10.0.0.1", 1))));
}

TEST(PortRules, TheAddressItselfFitsBetterThanAWildcard) {
  const Address destination = ipv4("10.0.0.1", 1);
  EXPECT_GT(listener_rank(id_at(destination, kIdListening), destination, kAnyDevice),
            listener_rank(id_at(ipv4("0.0.0.0", 1), kIdListening), destination, kAnyDevice));
}

TEST(PortRules, TheOwnFamilysWildcardFitsBetterThanTheOthers) {
  const Address destination = ipv4("10.0.0.1", 1);
  EXPECT_GT(listener_rank(id_at(ipv4("0.0.0.0", 1), kIdListening), destination, kAnyDevice),
            listener_rank(id_at(ipv6("::", 1), kIdListening), destination, kAnyDevice));
}

TEST(PortRules, ScopesDoNotMatterToAListener) {  // each side numbers its own interfaces
  EXPECT_EQ(listener_rank(id_at(ipv6("fe80::1", 1, 2), kIdListening), ipv6("fe80::1", 1, 3), kAnyDevice), 3);
}

TEST(PortRules, AnIbAddressLiesInTheSpaceOfItsServiceId) {
  IdFacts id = id_at(ib("::", 0x1110000 | 5));
  id.space = PortSpace::kIb;
  EXPECT_EQ(bound_space(id), PortSpace::kUdp);
}

}  // namespace
}  // namespace verbena::cm
