// SPDX-License-Identifier: BSD-2-Clause
//
// The id table between processes: which one gets a port that two ask for at once, and what a dead one leaves
// behind.
#include <errno.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <vector>

#include "cm/id_table.h"
#include "unit/cm/addresses.h"
#include "unit/common/child.h"
#include "unit/common/scoped_membership.h"
#include "unit/common/temporary_node.h"

namespace verbena::cm {
namespace {

constexpr uint32_t kRounds = 300;
constexpr uint16_t kFirstPort = 7000;

// What a process needs to have ids.
struct Player {
  ScopedMembership member;
  NodeDirectory directory;
  IdTable table;

  explicit Player(const std::string& node) : member(node) {
    if (directory.open(directory_path(node).c_str()) == 0) ready = table.open(directory, node) == 0;
    ready = ready && member.error == 0;
  }
  Owner owner() const { return {member.membership.slot(), member.membership.generation()}; }
  IdHandle add(const Address& local, IdFacts* facts, uint8_t flags = kIdFamilyOnly) const {
    *facts = {};
    facts->local = local;
    facts->space = PortSpace::kTcp;
    facts->flags = flags;
    facts->device = kNoDevice;
    IdHandle id;
    EXPECT_EQ(table.add(owner(), *facts, &id), 0);
    return id;
  }
  int bind(const Address& local) const {
    IdFacts facts;
    const IdHandle id = add(local, &facts);
    const int error = table.bind(id, &facts);
    if (error != 0) table.remove(id);
    return error;
  }

  bool ready = false;
};

// Memory that parent and children share.
template <typename T>
class Shared {
 public:
  Shared() {
    void* memory = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) value_ = new (memory) T{};
  }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ~Shared() {
    if (value_ != nullptr) munmap(value_, sizeof(T));
  }
  T* operator->() const { return value_; }

 private:
  T* value_ = nullptr;
};

struct Race {
  std::atomic<uint32_t> arrived[kRounds];
  std::atomic<uint32_t> winners[kRounds];
  std::atomic<uint32_t> other_answers;
};

// Binds to one port after the other, each time when the other process is ready as well.
int race(const std::string& node, Race* r) {
  const Player player(node);
  if (!player.ready) return 1;
  for (uint32_t i = 0; i < kRounds; ++i) {
    const Address wanted = ipv4("10.0.0.1", static_cast<uint16_t>(kFirstPort + i));
    r->arrived[i].fetch_add(1);
    while (r->arrived[i].load() < 2) sched_yield();
    const int error = player.bind(wanted);
    r->winners[i].fetch_add(error == 0);
    r->other_answers.fetch_add(error != 0 && error != EADDRINUSE);
  }
  // The ports of a process that ends become free: none ends before all is over.
  r->arrived[kRounds - 1].fetch_add(1);
  while (r->arrived[kRounds - 1].load() < 4) sched_yield();
  return 0;
}

TEST(CmProcesses, OfTwoThatAskForOnePortExactlyOneGetsIt) {
  const TemporaryNode node;
  const Shared<Race> shared;
  Child one([&](const Child&) { return race(node.path(), shared.operator->()); });
  Child two([&](const Child&) { return race(node.path(), shared.operator->()); });
  ASSERT_EQ(one.finish(), 0);
  ASSERT_EQ(two.finish(), 0);
  for (uint32_t i = 0; i < kRounds; ++i) ASSERT_EQ(shared->winners[i].load(), 1u) << "round " << i;
  EXPECT_EQ(shared->other_answers.load(), 0u);
}

// A child that listens on `local`, has joined a group, and waits.
Child listening_child(const std::string& node, const Address& local) {
  return Child([&](const Child& self) {
    const Player player(node);
    if (!player.ready) return 1;
    IdFacts facts;
    const IdHandle id = player.add(local, &facts);
    if (player.table.bind(id, &facts) != 0 || player.table.listen(id, &facts, 1) != 0) return 2;
    if (player.table.join(id, gid("ff02::7"), false) != 0) return 3;
    self.tell('l');
    self.hear();
    return 0;
  });
}

class CmDeath : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(player_.ready);
    ASSERT_EQ(child_.answer(), 'l');
  }
  size_t ids() const {
    size_t count = 0;
    player_.table.for_each_id([&](const IdRecord&) { ++count; });
    return count;
  }
  size_t groups() const {
    size_t count = 0;
    player_.table.for_each_group([&](const GroupRecord&) { ++count; });
    return count;
  }
  bool heard() const {
    IdRecord found;
    return player_.table.find_listener(PortSpace::kTcp, local_, kAnyDevice, &found);
  }

  const Address local_ = ipv4("10.0.0.1", 7000);
  TemporaryNode node_;
  Child child_ = listening_child(node_.path(), local_);
  Player player_{node_.path()};
};

TEST_F(CmDeath, WhileItLivesEverythingIsThere) {
  EXPECT_EQ(ids(), 1u);
  EXPECT_EQ(groups(), 1u);
  EXPECT_TRUE(heard());
  EXPECT_EQ(player_.bind(local_), EADDRINUSE);
}

TEST_F(CmDeath, AtOnceNothingIsHeard) {
  child_.kill_now();
  EXPECT_FALSE(heard());
}

TEST_F(CmDeath, AtOnceThePortIsFree) {
  child_.kill_now();
  EXPECT_EQ(player_.bind(local_), 0);
}

TEST_F(CmDeath, AtOnceNothingIsShown) {
  child_.kill_now();
  EXPECT_EQ(ids(), 0u);
  EXPECT_EQ(groups(), 0u);
}

TEST_F(CmDeath, AStoppedProcessKeepsItsPort) {
  child_.stop();
  EXPECT_EQ(player_.bind(local_), EADDRINUSE);
  child_.go_on();
}

TEST_F(CmDeath, WhatADeadProcessLeavesIsFoundAgainByTheNextUser) {
  child_.kill_now();
  // There are so many only if the dead process's entry is freed.
  for (uint32_t i = 0; i < kMaxNodeIds; ++i) {
    IdHandle id;
    ASSERT_EQ(player_.table.add(player_.owner(), IdFacts{}, &id), 0) << i;
  }
}

TEST(CmProcesses, ATableOfAnotherNodeIsRefused) {
  const TemporaryNode one;
  const TemporaryNode two;
  IdTable table;
  ASSERT_EQ(table.open(one.directory(), one.path()), 0);
  EXPECT_EQ(table.open(two.directory(), one.path()), EPROTO);
}

TEST(CmProcesses, WithoutRdmaCmThereIsNoTable) {
  const TemporaryNode node;
  IdTable table;
  EXPECT_EQ(table.open(node.directory(), node.path(), true), ENOENT);
}

}  // namespace
}  // namespace verbena::cm
