// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/node_membership.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "fabric/descriptor.h"
#include "fabric/fifo.h"
#include "fabric/kick.h"
#include "unit/common/child.h"
#include "unit/common/scoped_membership.h"
#include "unit/common/temporary_node.h"

namespace verbena {
namespace {

constexpr uint32_t kSomeThread = 1;  // holds a lock: for the word of a RobustLock

class NodeMembershipTest : public ::testing::Test {
 protected:
  // A child that stays on the node until told otherwise; its slot and generation.
  struct Other {
    explicit Other(const std::string& node)
        : child([&](const Child& self) {
            NodeMembership membership;
            if (membership.enter(node, nullptr, nullptr) != 0) return 1;
            self.tell(static_cast<char>(membership.slot() + 1));
            self.hear();
            membership.leave();
            return 0;
          }),
          slot(static_cast<uint32_t>(child.answer()) - 1) {}
    Child child;
    uint32_t slot;
  };
  bool alive(uint32_t slot) const {
    return node_.directory().alive(slot, node_.directory().slot(slot).generation.load());
  }

  void reclaim() const {
    RobustLock lock;
    reclaim_dead_slots(node_.directory(), node_.path(), lock);
  }

  size_t linked_slots() const {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(node_.path() + "/slots"))
      count += entry.is_symlink();
    return count;
  }
  uint32_t occupied_slots() const {
    uint32_t count = 0;
    for (uint32_t i = 0; i < kMaxSlots; ++i) count += node_.directory().occupied(i);
    return count;
  }

  TemporaryNode node_;
};

TEST_F(NodeMembershipTest, IsAliveOnceEntered) {
  const ScopedMembership member(node_.path());
  ASSERT_EQ(member.error, 0);
  EXPECT_TRUE(node_.directory().alive(member.membership.slot(), member.membership.generation()));
}

TEST_F(NodeMembershipTest, LeavesNothingBehind) {
  uint32_t slot;
  {
    const ScopedMembership member(node_.path());
    ASSERT_EQ(member.error, 0);
    slot = member.membership.slot();
    EXPECT_EQ(node_.slot_folders(), 1u);
  }
  EXPECT_FALSE(node_.directory().occupied(slot));
  EXPECT_EQ(node_.directory().slot(slot).state.load(), SlotState::kFree);
  EXPECT_EQ(node_.slot_folders(), 0u);
}

TEST_F(NodeMembershipTest, OfSeveralInOneProcessAreDifferentSlots) {
  const ScopedMembership first(node_.path()), second(node_.path());
  ASSERT_EQ(first.error, 0);
  ASSERT_EQ(second.error, 0);
  EXPECT_NE(first.membership.slot(), second.membership.slot());
}

TEST_F(NodeMembershipTest, InASlotUsedAgainIsAnotherGeneration) {
  uint32_t slot, generation;
  {
    const ScopedMembership member(node_.path());
    slot = member.membership.slot();
    generation = member.membership.generation();
  }
  node_.directory().header().next_slot.store(slot);
  const ScopedMembership again(node_.path());
  ASSERT_EQ(again.membership.slot(), slot);
  EXPECT_GT(again.membership.generation(), generation);
  EXPECT_FALSE(node_.directory().alive(slot, generation));
}

TEST_F(NodeMembershipTest, IsNotInASlotThatIsTaken) {
  const ScopedMembership first(node_.path());
  node_.directory().header().next_slot.store(first.membership.slot());
  const ScopedMembership second(node_.path());
  EXPECT_EQ(second.membership.slot(), first.membership.slot() + 1);
}

TEST_F(NodeMembershipTest, NeedsANode) { EXPECT_EQ(ScopedMembership("/nowhere").error, ENOENT); }

TEST_F(NodeMembershipTest, IsRefusedOnANodeOfAnotherVersion) {
  node_.directory().header().layout_version += 1;
  EXPECT_EQ(ScopedMembership(node_.path()).error, EPROTO);
}

TEST_F(NodeMembershipTest, IsRefusedOnANodeThatOthersCanEnter) {
  ASSERT_EQ(chmod(node_.path().c_str(), 0711), 0);
  EXPECT_EQ(ScopedMembership(node_.path()).error, EPERM);
  ASSERT_EQ(chmod(node_.path().c_str(), 0700), 0);
}

TEST_F(NodeMembershipTest, IsRefusedOnALinkToANode) {
  const std::string link = node_.folder() + "/link";
  ASSERT_EQ(symlink(node_.path().c_str(), link.c_str()), 0);
  EXPECT_EQ(ScopedMembership(link).error, EPERM);
}

TEST_F(NodeMembershipTest, IsRefusedOnAnotherUsersNode) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  ASSERT_EQ(chown(node_.path().c_str(), 12345, 12345), 0);
  EXPECT_EQ(ScopedMembership(node_.path()).error, EPERM);
  ASSERT_EQ(chown(node_.path().c_str(), 0, 0), 0);
}

// The node is this user's, but the directory file in it was made by another one.
TEST_F(NodeMembershipTest, IsRefusedOnAnotherUsersDirectoryFile) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  ASSERT_EQ(chown(directory_path(node_.path()).c_str(), 12345, 12345), 0);
  EXPECT_EQ(ScopedMembership(node_.path()).error, EPERM);
}

// What a slot folder's name leads to, after somebody has put a link in its place.
class LinkedSlotFolder {
 public:
  explicit LinkedSlotFolder(const TemporaryNode& node) : elsewhere_(node.folder() + "/elsewhere") {
    EXPECT_EQ(mkdir(elsewhere_.c_str(), 0700), 0);
    EXPECT_EQ(mkfifo(fifo().c_str(), 0600), 0);
  }
  void put_at(const std::string& folder) const {
    rename(folder.c_str(), (elsewhere_ + ".aside").c_str());
    EXPECT_EQ(symlink(elsewhere_.c_str(), folder.c_str()), 0);
  }
  std::string fifo() const { return elsewhere_ + "/kick"; }
  // The FIFO has been written to.
  bool is_kicked() const {
    const Descriptor reader(open(fifo().c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    char byte;
    return read(reader.fd, &byte, 1) == 1;
  }
  bool is_untouched() const { return access(fifo().c_str(), F_OK) == 0; }

 private:
  std::string elsewhere_;
};

TEST_F(NodeMembershipTest, LeavesWithoutFollowingALinkInPlaceOfItsFolder) {
  const LinkedSlotFolder linked(node_);
  {
    const ScopedMembership member(node_.path());
    ASSERT_EQ(member.error, 0);
    linked.put_at(member.membership.folder());
  }
  EXPECT_TRUE(linked.is_untouched());
}

TEST_F(NodeMembershipTest, MakesNoFifoBehindALinkInPlaceOfItsFolder) {
  const LinkedSlotFolder linked(node_);
  const ScopedMembership member(node_.path());
  ASSERT_EQ(member.error, 0);
  linked.put_at(member.membership.folder());
  FifoEnd fifo;
  EXPECT_EQ(member.membership.make_fifo(fifo, "c1"), EPERM);
  member.membership.remove_fifo("kick");
  EXPECT_TRUE(linked.is_untouched());
}

// A FIFO that is open keeps its pipe until it is closed: `reader` holds what is written.
TEST_F(NodeMembershipTest, IsWokenByItsSocketIfALinkIsInPlaceOfItsFolder) {
  const LinkedSlotFolder linked(node_);
  const Descriptor reader(open(linked.fifo().c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  std::atomic<int> calls{0};
  const ScopedMembership member(
      node_.path(),
      [](void* count) -> int64_t {
        static_cast<std::atomic<int>*>(count)->fetch_add(1);
        return -1;
      },
      &calls);
  ASSERT_EQ(member.error, 0);
  linked.put_at(member.membership.folder());
  const int before = calls.load();
  EXPECT_TRUE(kick_slot(member.membership.directory(), node_.path(), member.membership.slot(),
                        member.membership.generation()));
  EXPECT_TRUE(eventually([&] { return calls.load() > before; }));
  EXPECT_FALSE(linked.is_kicked());
}

TEST_F(NodeMembershipTest, MakesNoFifoInAFolderThatOthersMayWriteTo) {
  const ScopedMembership member(node_.path());
  ASSERT_EQ(member.error, 0);
  ASSERT_EQ(chmod(member.membership.folder().c_str(), 0777), 0);
  FifoEnd fifo;
  EXPECT_EQ(member.membership.make_fifo(fifo, "c1"), EPERM);
}

TEST_F(NodeMembershipTest, LeavesInItsFolderWhatItDidNotMake) {
  std::string file;
  {
    const ScopedMembership member(node_.path());
    ASSERT_EQ(member.error, 0);
    file = member.membership.folder() + "/notes";
    std::ofstream(file) << "somebody's";
  }
  EXPECT_EQ(access(file.c_str(), F_OK), 0);
}

TEST_F(NodeMembershipTest, DoesNotFollowALinkInPlaceOfADeadSlotsFolder) {
  const LinkedSlotFolder linked(node_);
  const Child dead([&](const Child&) {
    NodeMembership membership;
    if (membership.enter(node_.path(), nullptr, nullptr) != 0) return 1;
    linked.put_at(membership.folder());
    _exit(0);
  });
  ASSERT_TRUE(eventually([&] { return linked_slots() == 1 && occupied_slots() == 0; }));
  reclaim();
  EXPECT_TRUE(linked.is_untouched());
}

TEST_F(NodeMembershipTest, IsRefusedWhenEverySlotIsTaken) {
  for (uint32_t i = 0; i < kMaxSlots; ++i) node_.directory().slot(i).life = kSomeThread;
  EXPECT_EQ(ScopedMembership(node_.path()).error, EMFILE);
}

TEST_F(NodeMembershipTest, TakesTheLastSlotThatIsFree) {
  for (uint32_t i = 0; i < kMaxSlots; ++i)
    if (i != 700) node_.directory().slot(i).life = kSomeThread;
  const ScopedMembership member(node_.path());
  EXPECT_EQ(member.error, 0);
  EXPECT_EQ(member.membership.slot(), 700u);
}

TEST_F(NodeMembershipTest, OfAKilledProcessIsDeadAtOnce) {
  Other other(node_.path());
  ASSERT_TRUE(alive(other.slot));
  other.child.kill_now();
  EXPECT_FALSE(alive(other.slot));
}

TEST_F(NodeMembershipTest, OfAKilledProcessIsClearedByTheNextProcess) {
  Other other(node_.path());
  const uint32_t qpn = node_.directory().claim_qpn(other.slot, 1);
  node_.directory().hazard(other.slot, 0).target.store(1ull << 48);
  other.child.kill_now();
  const ScopedMembership member(node_.path());
  ASSERT_EQ(member.error, 0);
  QpnEntry found;
  EXPECT_FALSE(node_.directory().find_qpn(qpn, &found));
  EXPECT_EQ(node_.directory().hazard(other.slot, 0).target.load(), 0u);
  EXPECT_EQ(node_.directory().slot(other.slot).state.load(), SlotState::kFree);
  EXPECT_EQ(node_.slot_folders(), 1u);
}

// Slot::numbers is an upper bound, whatever is done with a number: that of a dead process is cleared with its
// slot.
TEST_F(NodeMembershipTest, CountsTheNumbersThatItMayHold) {
  const NodeDirectory& directory = node_.directory();
  Other first(node_.path()), second(node_.path());
  const std::atomic<uint32_t>&of_first = directory.slot(first.slot).numbers,
        &of_second = directory.slot(second.slot).numbers;
  const uint32_t qpn = directory.claim_qpn(first.slot, 1), gone = directory.claim_srqn(first.slot, 2);
  EXPECT_EQ(of_first.load(), 2u);
  directory.release_srqn(gone, first.slot);
  directory.release_srqn(gone, first.slot);
  EXPECT_EQ(of_first.load(), 1u);
  const QpnEntry from{qpn, first.slot, 1}, wrong{qpn, first.slot, 3};
  EXPECT_FALSE(directory.take_over_qpn(qpn, &wrong, second.slot, 5));
  EXPECT_EQ(of_second.load(), 0u);
  EXPECT_TRUE(directory.take_over_qpn(qpn, &from, second.slot, 5));
  EXPECT_EQ(of_second.load(), 1u);
  EXPECT_EQ(of_first.load(), 1u) << "its process alone lowers it";
  first.child.kill_now();
  second.child.kill_now();
  const ScopedMembership member(node_.path());
  ASSERT_EQ(member.error, 0);
  QpnEntry found;
  EXPECT_FALSE(directory.find_qpn(qpn, &found));
  EXPECT_EQ(of_first.load(), 0u);
  EXPECT_EQ(of_second.load(), 0u);
}

TEST_F(NodeMembershipTest, OfAKilledProcessIsTakenInANewGeneration) {
  Other other(node_.path());
  const uint32_t generation = node_.directory().slot(other.slot).generation.load();
  other.child.kill_now();
  node_.directory().header().next_slot.store(other.slot);
  const ScopedMembership member(node_.path());
  EXPECT_EQ(member.membership.slot(), other.slot);
  EXPECT_GT(member.membership.generation(), generation);
}

TEST_F(NodeMembershipTest, OfAStoppedProcessIsLeftAlone) {
  Other other(node_.path());
  other.child.stop();
  reclaim();
  EXPECT_TRUE(alive(other.slot));
  EXPECT_EQ(node_.slot_folders(), 1u);
}

// A sandbox may take away all descriptors that are to come. ppoll(2) fails then, if it is asked for more of
// them.
TEST_F(NodeMembershipTest, StaysWhenTheProgramMayHaveOneDescriptor) {
  const Child child([&](const Child& self) {
    std::atomic<int> calls{0};
    const auto work = [](void* count) -> int64_t {
      static_cast<std::atomic<int>*>(count)->fetch_add(1);
      return -1;
    };
    NodeMembership membership;
    if (membership.enter(node_.path(), work, &calls) != 0) return 1;
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    const rlimit one{1, limit.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &one) != 0) return 1;
    const int before = calls.load();
    self.tell(static_cast<char>(membership.slot() + 1));
    self.tell(eventually([&] { return calls.load() > before + 3; }) ? 'y' : 'n');
    self.hear();
    setrlimit(RLIMIT_NOFILE, &limit);
    membership.leave();
    return 0;
  });
  const uint32_t slot = static_cast<uint32_t>(child.answer()) - 1;
  ASSERT_LT(slot, kMaxSlots);
  ASSERT_TRUE(
      kick_slot(node_.directory(), node_.path(), slot, node_.directory().slot(slot).generation.load()));
  EXPECT_EQ(child.answer(), 'y');
  EXPECT_TRUE(alive(slot));
}

TEST_F(NodeMembershipTest, DoesItsWorkWhenKicked) {
  std::atomic<int> calls{0};
  ScopedMembership member(
      node_.path(),
      [](void* count) -> int64_t {
        static_cast<std::atomic<int>*>(count)->fetch_add(1);
        return -1;
      },
      &calls);
  const int before = calls.load();
  member.membership.kick();
  EXPECT_TRUE(eventually([&] { return calls.load() > before; }));
}

TEST_F(NodeMembershipTest, ComesBackWhenItsWorkAskedForIt) {
  std::atomic<int> calls{0};
  ScopedMembership member(
      node_.path(),
      [](void* count) -> int64_t {
        return static_cast<std::atomic<int>*>(count)->fetch_add(1) < 5 ? 1'000'000 : -1;
      },
      &calls);
  member.membership.kick();
  EXPECT_TRUE(eventually([&] { return calls.load() >= 6; }));
}

// A copy of this program, set-user-ID to another user, runs this test again and asks for a slot. It ends by
// _exit(2): LeakSanitizer cannot look into such a process.
TEST(ProgramOfAnotherUser, IsRefusedEverywhere) {
  constexpr const char* kCopy = "VERBENA_TEST_COPY";
  if (getenv(kCopy) != nullptr) {
    if (getauxval(AT_SECURE) == 0) _exit(77);
    _exit(NodeMembership().enter("/nowhere", nullptr, nullptr) == EPERM ? 0 : 1);
  }
  if (geteuid() != 0) GTEST_SKIP() << "only root can make a program of another user";
  const TemporaryFolder folder;
  const std::string copy = folder.path() + "/program";
  std::filesystem::copy_file("/proc/self/exe", copy);
  ASSERT_EQ(chown(copy.c_str(), 12345, 12345), 0);
  ASSERT_EQ(chmod(copy.c_str(), 04755), 0);
  const pid_t child = fork();
  if (child == 0) {
    setenv(kCopy, "1", 1);
    execl(copy.c_str(), copy.c_str(), "--gtest_filter=ProgramOfAnotherUser.IsRefusedEverywhere", nullptr);
    _exit(2);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "the file system is mounted without set-user-ID programs";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace verbena
