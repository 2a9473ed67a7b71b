// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/multicast_table.h"

#include <errno.h>
#include <gtest/gtest.h>

#include "fabric/node_membership.h"
#include "unit/common/child.h"
#include "unit/common/temporary_node.h"

namespace verbena {
namespace {

constexpr MulticastLimits kWide{100, 100, 100};

MulticastGid group_of(uint8_t number) {
  MulticastGid gid{};
  gid[0] = 0xff;
  gid[15] = number;
  return gid;
}
MulticastMember member(uint32_t qp_index, uint32_t slot = 3) { return {slot, 7, qp_index, 1}; }

class Multicast : public ::testing::Test {
 protected:
  int attach(const MulticastMember& who, const MulticastGid& gid, uint32_t lid = 0,
             const MulticastLimits& limits = kWide, uint32_t device = 0) const {
    return table_.attach(who, gid, lid, device, limits);
  }
  size_t size(const MulticastGid& gid) const { return table_.members(gid).size(); }

  TemporaryNode node_;
  MulticastTable table_{node_.directory()};
};

TEST_F(Multicast, AGroupNobodyJoinedIsEmpty) { EXPECT_EQ(size(group_of(1)), 0u); }

TEST_F(Multicast, AttachedQpIsAMember) {
  ASSERT_EQ(attach(member(5), group_of(1)), 0);
  const auto found = table_.members(group_of(1));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].member.qp_index, 5u);
  EXPECT_EQ(found[0].member.slot, 3u);
  EXPECT_EQ(found[0].member.slot_generation, 7u);
  EXPECT_EQ(found[0].member.incarnation, 1u);
}

TEST_F(Multicast, MembersAreOfTheirGroupOnly) {
  ASSERT_EQ(attach(member(5), group_of(1)), 0);
  EXPECT_EQ(size(group_of(2)), 0u);
}

TEST_F(Multicast, AttachedTwiceIsAMemberOnce) {
  ASSERT_EQ(attach(member(5), group_of(1)), 0);
  ASSERT_EQ(attach(member(5), group_of(1)), 0);
  EXPECT_EQ(size(group_of(1)), 1u);
}

TEST_F(Multicast, AttachedTwiceIsDetachedByOne) {
  ASSERT_EQ(attach(member(5), group_of(1)), 0);
  ASSERT_EQ(attach(member(5), group_of(1)), 0);
  ASSERT_EQ(table_.detach(member(5), group_of(1), 0), 0);
  EXPECT_EQ(size(group_of(1)), 0u);
}

TEST_F(Multicast, AttachedUnderTwoLidsIsAMemberOnce) {
  ASSERT_EQ(attach(member(5), group_of(1), 0xc000), 0);
  ASSERT_EQ(attach(member(5), group_of(1), 0xc001), 0);
  EXPECT_EQ(size(group_of(1)), 1u);
}

TEST_F(Multicast, DetachingWhatIsNotAttachedIsRefused) {
  EXPECT_EQ(table_.detach(member(5), group_of(1), 0), EINVAL);
}

TEST_F(Multicast, DetachingUnderAnotherLidIsRefused) {
  ASSERT_EQ(attach(member(5), group_of(1), 0xc000), 0);
  EXPECT_EQ(table_.detach(member(5), group_of(1), 0xc001), EINVAL);
}

TEST_F(Multicast, ALaterQpOfTheSameIndexIsNoMember) {
  ASSERT_EQ(attach(member(5), group_of(1)), 0);
  MulticastMember later = member(5);
  later.incarnation = 2;
  EXPECT_FALSE(table_.attached(later));
}

TEST_F(Multicast, WhatWasFoundIsNoMemberAfterDetaching) {
  ASSERT_EQ(attach(member(5), group_of(1)), 0);
  const auto found = table_.members(group_of(1));
  ASSERT_TRUE(table_.is_still(found[0]));
  ASSERT_EQ(table_.detach(member(5), group_of(1), 0), 0);
  EXPECT_FALSE(table_.is_still(found[0]));
}

TEST_F(Multicast, WhatWasFoundIsAnotherMemberAfterAttachingAgain) {
  ASSERT_EQ(attach(member(5), group_of(1)), 0);
  const auto found = table_.members(group_of(1));
  ASSERT_EQ(table_.detach(member(5), group_of(1), 0), 0);
  ASSERT_EQ(attach(member(5), group_of(1)), 0);
  EXPECT_FALSE(table_.is_still(found[0]));
}

TEST_F(Multicast, AProcessHasTheGroupsOfItsQueuePairs) {
  ASSERT_EQ(attach(member(5), group_of(1)), 0);
  ASSERT_EQ(attach(member(6), group_of(1)), 0);
  ASSERT_EQ(attach(member(6), group_of(2)), 0);
  ASSERT_EQ(attach(member(6, 4), group_of(3)), 0);
  EXPECT_EQ(table_.groups_of(3), (std::vector<MulticastGid>{group_of(1), group_of(2)}));
  ASSERT_EQ(table_.detach(member(6), group_of(1), 0), 0);
  ASSERT_EQ(table_.detach(member(6), group_of(2), 0), 0);
  EXPECT_EQ(table_.groups_of(3), (std::vector<MulticastGid>{group_of(1)}));
  EXPECT_TRUE(table_.groups_of(5).empty());
}

TEST_F(Multicast, EveryChangeIsANewVersion) {
  const uint64_t before = table_.version();
  ASSERT_EQ(attach(member(5), group_of(1)), 0);
  const uint64_t between = table_.version();
  ASSERT_EQ(table_.detach(member(5), group_of(1), 0), 0);
  EXPECT_NE(before, between);
  EXPECT_NE(between, table_.version());
}

TEST_F(Multicast, ExactlyTheMembersOfAGroupThatAreAllowed) {
  const MulticastLimits two{100, 2, 100};
  EXPECT_EQ(attach(member(1), group_of(1), 0, two), 0);
  EXPECT_EQ(attach(member(2), group_of(1), 0, two), 0);
  EXPECT_EQ(attach(member(3), group_of(1), 0, two), ENOMEM);
  EXPECT_EQ(size(group_of(1)), 2u);
}

TEST_F(Multicast, ExactlyTheGroupsThatAreAllowed) {
  const MulticastLimits two{2, 100, 100};
  EXPECT_EQ(attach(member(1), group_of(1), 0, two), 0);
  EXPECT_EQ(attach(member(1), group_of(2), 0, two), 0);
  EXPECT_EQ(attach(member(1), group_of(3), 0, two), ENOMEM);
  EXPECT_EQ(attach(member(2), group_of(2), 0, two), 0);
}

TEST_F(Multicast, ExactlyTheAttachmentsThatAreAllowed) {
  const MulticastLimits two{100, 100, 2};
  EXPECT_EQ(attach(member(1), group_of(1), 0, two), 0);
  EXPECT_EQ(attach(member(2), group_of(2), 0, two), 0);
  EXPECT_EQ(attach(member(3), group_of(1), 0, two), ENOMEM);
}

TEST_F(Multicast, LimitsAreEachDevicesOwn) {
  const MulticastLimits one{1, 1, 1};
  EXPECT_EQ(attach(member(1), group_of(1), 0, one, 0), 0);
  EXPECT_EQ(attach(member(2), group_of(1), 0, one, 1), 0);
}

TEST_F(Multicast, EntriesOfAReleasedSlotAreGone) {
  ASSERT_EQ(attach(member(1, 3), group_of(1)), 0);
  ASSERT_EQ(attach(member(1, 4), group_of(1)), 0);
  table_.release_all(3);
  const auto left = table_.members(group_of(1));
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].member.slot, 4u);
}

}  // namespace
}  // namespace verbena
