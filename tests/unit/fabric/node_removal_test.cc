// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/node_removal.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "fabric/node.h"
#include "fabric/node_directory.h"
#include "fabric/node_holders.h"
#include "fabric/process_identity.h"
#include "unit/common/child.h"
#include "unit/common/scoped_membership.h"
#include "unit/common/temporary_folder.h"

namespace verbena {
namespace {

namespace fs = std::filesystem;

class NodeRemoval : public ::testing::Test {
 protected:
  std::string path(int number = 0) const { return folder_.path() + "/n" + std::to_string(number); }

  // A node that a process has made which lives no more.
  void make_unheld(const std::string& node) const {
    Child creator([&](const Child&) {
      std::string problem;
      return ensure_node(node, {}, &problem);
    });
    ASSERT_EQ(creator.finish(), 0);
  }
  void make_held(const std::string& node) const {
    std::string problem;
    ASSERT_EQ(ensure_node(node, {}, &problem), 0) << problem;
  }
  size_t names() const {
    const fs::directory_iterator all(folder_.path());
    return static_cast<size_t>(std::distance(begin(all), end(all)));
  }

  const TemporaryFolder folder_;
};

TEST_F(NodeRemoval, OfANodeThatNobodyUsesLeavesNothing) {
  make_unheld(path());
  EXPECT_EQ(remove_node(path()), Removal::kRemoved);
  EXPECT_EQ(names(), 0u);
}

TEST_F(NodeRemoval, NeedsANode) { EXPECT_EQ(remove_node(path()), Removal::kNoNode); }

TEST_F(NodeRemoval, OnlyLooksIfAsked) {
  make_unheld(path());
  EXPECT_EQ(remove_node(path(), {.only_look = true}), Removal::kRemoved);
  EXPECT_TRUE(fs::exists(directory_path(path())));
  const ScopedMembership member(path());
  EXPECT_EQ(member.error, 0);
}

TEST_F(NodeRemoval, HappensWhenTheLastMemberLeaves) {
  make_unheld(path());
  {
    const ScopedMembership first(path());
    ASSERT_EQ(first.error, 0);
    { const ScopedMembership second(path()); }
    EXPECT_TRUE(fs::exists(path()));
  }
  EXPECT_EQ(names(), 0u);
}

TEST_F(NodeRemoval, WaitsForTheHolder) {
  Child holder([&](const Child& self) {
    std::string problem;
    const int error = ensure_node(path(), {}, &problem);
    self.tell('m');
    self.hear();
    return error;
  });
  ASSERT_EQ(holder.answer(), 'm');
  { const ScopedMembership member(path()); }
  EXPECT_EQ(remove_node(path()), Removal::kInUse);
  holder.kill_now();
  EXPECT_EQ(remove_node(path()), Removal::kRemoved);
}

TEST_F(NodeRemoval, IsNotDoneToALivingMember) {
  make_unheld(path());
  const ScopedMembership member(path());
  EXPECT_EQ(remove_node(path()), Removal::kInUse);
}

TEST_F(NodeRemoval, IsNotDoneWhileAProcessIsAboutToJoin) {
  make_unheld(path());
  const int joiner = open(directory_path(path()).c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(flock(joiner, LOCK_SH), 0);
  EXPECT_EQ(remove_node(path()), Removal::kInUse);
  close(joiner);
}

TEST_F(NodeRemoval, LeavesANodeWithAPortThatIsDown) {
  make_unheld(path());
  NodeDirectory directory;
  ASSERT_EQ(directory.open(directory_path(path()).c_str()), 0);
  uint32_t told = 0;
  ASSERT_EQ(raise_device_event(directory, path(), 0, IBV_EVENT_PORT_ERR, &told), 0);
  EXPECT_EQ(remove_node(path()), Removal::kRemembers);
  EXPECT_EQ(remove_node(path(), {.with_ports = true}), Removal::kRemoved);
}

TEST_F(NodeRemoval, OfANodeFromBeforeARestartOfTheMachineIgnoresItsSlots) {
  make_unheld(path());
  NodeDirectory directory;
  ASSERT_EQ(directory.open(directory_path(path()).c_str()), 0);
  directory.slot(3).life = 1;  // the kernel had no time to mark it
  directory.header().boot += 1;
  EXPECT_EQ(remove_node(path()), Removal::kRemoved);
}

TEST_F(NodeRemoval, TouchesNoFolderOfOthers) {
  make_unheld(path());
  ASSERT_EQ(chmod(path().c_str(), 0755), 0);
  EXPECT_EQ(remove_node(path()), Removal::kFailed);
  EXPECT_TRUE(fs::exists(directory_path(path())));
}

TEST_F(NodeRemoval, IsRepeatedForEachNodeByTheNextArrival) {
  for (int i = 1; i <= 5; ++i) make_unheld(path(i));
  ASSERT_LE(names(), 2u);  // each arrival has removed the one before
  make_held(path(0));
  EXPECT_EQ(names(), 1u);
}

TEST_F(NodeRemoval, LeavesNothingOfAHundredNodes) {
  for (int i = 0; i < 100; ++i) {
    make_unheld(path(i));
    const ScopedMembership member(path(i));
    ASSERT_EQ(member.error, 0);
  }
  EXPECT_EQ(names(), 0u);
}

// A process that was killed during a removal, after each of its steps.
TEST_F(NodeRemoval, ThatEndedBeforeTheRenameIsCompletedByTheNextArrival) {
  make_unheld(path());
  NodeDirectory directory;
  ASSERT_EQ(directory.open(directory_path(path()).c_str()), 0);
  const uint64_t before = directory.header().node_id;
  directory.header().retired.store(1);
  EXPECT_EQ(ScopedMembership(path()).error, ENOENT);
  make_held(path());
  ASSERT_EQ(directory.open(directory_path(path()).c_str()), 0);
  EXPECT_NE(directory.header().node_id, before);
  EXPECT_EQ(names(), 1u);
}

TEST_F(NodeRemoval, ThatEndedAfterTheRenameIsCompletedByTheNextArrival) {
  make_unheld(path());
  ASSERT_EQ(rename(path().c_str(), passing_name(folder_.path(), ".gone").c_str()), 0);
  make_held(path(1));
  EXPECT_EQ(names(), 1u);
}

TEST_F(NodeRemoval, TakesAwayWhatADeadBuilderHasLeft) {
  {
    Child builder([&](const Child& self) {
      fs::create_directories(passing_name(folder_.path(), ".new") + "/sys/class");
      self.tell('m');
      self.hear();
      return 0;
    });
    ASSERT_EQ(builder.answer(), 'm');
    make_held(path(1));
    EXPECT_EQ(names(), 2u);  // its builder may be at work
  }
  make_held(path(2));
  EXPECT_EQ(names(), 2u);
}

// Each process of the storm makes the node if it is gone, joins it, verifies that the node has this name, and
// leaves; some are killed meanwhile. A member whose node has lost its name shares it with nobody who comes.
int weather_the_storm(const std::string& node, unsigned seed) {
  std::minstd_rand random(seed);
  for (int round = 0; round < 30; ++round) {
    std::string problem;
    if (ensure_node(node, {}, &problem, random() % 2 == 0 ? getpid() : 0) != 0) return 1;
    NodeMembership member;
    const int error = member.enter(node, nullptr, nullptr);
    if (error == ENOENT) continue;  // it went before we came
    if (error != 0) return 2;
    for (int look = 0; look < 3; ++look) {
      NodeDirectory named;
      if (named.open(directory_path(node).c_str()) != 0) return 3;
      if (named.header().node_id != member.directory().header().node_id) return 4;
      if (named.header().retired.load() != 0) return 5;
    }
    member.leave();
  }
  return 0;
}

TEST_F(NodeRemoval, NeverTakesANodeFromAProcessThatJoins) {
  std::minstd_rand random(7);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::unique_ptr<Child>> storm;
    for (unsigned i = 0; i < 6; ++i)
      storm.push_back(std::make_unique<Child>([&, seed = static_cast<unsigned>(round) * 6 + i](const Child&) {
        return weather_the_storm(path(), seed);
      }));
    usleep(random() % 20'000);  // the instant of the kills, not a synchronisation
    storm[0]->kill_now();
    storm[1]->kill_now();
    for (size_t i = 2; i < storm.size(); ++i) EXPECT_EQ(storm[i]->finish(), 0);
  }
  make_held(path());
  EXPECT_EQ(names(), 1u);
}

TEST(NodeHolder, IsCountedWhileItLives) {
  const TemporaryFolder folder;
  std::string problem;
  ASSERT_EQ(ensure_node(folder.path() + "/n", {}, &problem), 0) << problem;
  NodeDirectory directory;
  ASSERT_EQ(directory.open(directory_path(folder.path() + "/n").c_str()), 0);
  EXPECT_EQ(count_holders(directory), 1u);
  EXPECT_EQ(count_holders(directory, identity_of_process(getpid())), 0u);
  Child child([](const Child& self) { return self.hear() == 0 ? 1 : 0; });
  add_holder(directory, child.pid());
  add_holder(directory, child.pid());
  EXPECT_EQ(count_holders(directory), 2u);
  child.kill_now();
  EXPECT_EQ(count_holders(directory), 1u);
}

TEST(NodeHolder, FindsAPlaceAmongTheDead) {
  const TemporaryFolder folder;
  std::string problem;
  ASSERT_EQ(ensure_node(folder.path() + "/n", {}, &problem), 0) << problem;
  NodeDirectory directory;
  ASSERT_EQ(directory.open(directory_path(folder.path() + "/n").c_str()), 0);
  const uint64_t dead = identity_of_process(getpid()) + 1;  // another start time
  ASSERT_FALSE(process_lives(dead));
  for (uint32_t i = 0; i < kMaxHolders; ++i) directory.holder(i).store(dead);
  add_holder(directory, getpid());
  EXPECT_EQ(count_holders(directory), 1u);
}

}  // namespace
}  // namespace verbena
