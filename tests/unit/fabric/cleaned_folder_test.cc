// SPDX-License-Identifier: BSD-2-Clause
//
// Cleaners of old files (systemd-tmpfiles, tmpreaper) may delete anything of a living node at any time.
#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "fabric/kick.h"
#include "fabric/node.h"
#include "fabric/node_lock.h"
#include "fabric/node_membership.h"
#include "fabric/segment_passing.h"
#include "unit/common/child.h"
#include "unit/common/scoped_membership.h"
#include "unit/common/temporary_node.h"

namespace verbena {
namespace {

namespace fs = std::filesystem;

class CleanedFolder : public ::testing::Test {
 protected:
  CleanedFolder() { EXPECT_EQ(old_.error, 0); }

  void clean() { fs::remove_all(node_.path()); }
  SlotAddress old_address() const {
    return slot_address(old_.membership.directory(), node_.path(), old_.membership.slot(),
                        old_.membership.generation());
  }

  TemporaryNode node_;
  const ScopedMembership old_{node_.path()};
};

TEST_F(CleanedFolder, IsMadeAgainForTheSameNode) {
  clean();
  std::string problem;
  ASSERT_EQ(ensure_node(node_.path(), {.count = 2}, &problem), 0) << problem;
  EXPECT_TRUE(fs::exists(node_.path() + "/sys/class/infiniband/verbena1/node_guid"));
  NodeDirectory directory;
  ASSERT_EQ(directory.open(directory_path(node_.path()).c_str()), 0);
  EXPECT_EQ(directory.header().node_id, node_.directory().header().node_id);
}

TEST_F(CleanedFolder, KeepsNobodyOut) {
  clean();
  const ScopedMembership fresh(node_.path());
  ASSERT_EQ(fresh.error, 0);
  EXPECT_EQ(fresh.membership.directory().header().node_id, node_.directory().header().node_id);
  EXPECT_NE(fresh.membership.slot(), old_.membership.slot());
}

TEST_F(CleanedFolder, KeepsNobodyOutWhoComesFromAnotherProcess) {
  clean();
  Child other([&](const Child&) {
    NodeMembership membership;
    if (membership.enter(node_.path(), nullptr, nullptr) != 0) return 1;
    PassedSegment passed;
    const SlotAddress address = slot_address(membership.directory(), node_.path(), old_.membership.slot(),
                                             old_.membership.generation());
    if (ask_for_segment(address, 5000, &passed) != 0) return 2;
    membership.leave();
    return passed.segment_fd >= 0 ? 0 : 3;
  });
  EXPECT_EQ(other.finish(), 0);
}

// The one of another process answers nothing, and its files are found without its help.
TEST_F(CleanedFolder, OfAStoppedProcessIsFoundAllTheSame) {
  const TemporaryFolder place;
  const std::string path = place.path() + "/n";
  std::string problem;
  ASSERT_EQ(ensure_node(path, {}, &problem), 0) << problem;
  NodeDirectory before;
  ASSERT_EQ(before.open(directory_path(path).c_str()), 0);
  const uint64_t id = before.header().node_id;
  before = NodeDirectory();
  Child member([&](const Child& self) {
    NodeMembership membership;
    if (membership.enter(path, nullptr, nullptr) != 0) return 1;
    self.tell('m');
    self.hear();
    return 0;
  });
  ASSERT_EQ(member.answer(), 'm');
  member.stop();
  fs::remove_all(path);
  EXPECT_EQ(ensure_node(path, {}, &problem), 0) << problem;
  NodeDirectory after;
  ASSERT_EQ(after.open(directory_path(path).c_str()), 0);
  EXPECT_EQ(after.header().node_id, id);
}

TEST_F(CleanedFolder, HasAnsweringProcesses) {
  clean();
  PassedSegment passed;
  EXPECT_EQ(ask_for_segment(old_address(), 5000, &passed), 0);
  EXPECT_GE(passed.segment_fd, 0);
  for (const int fd : {passed.segment_fd, passed.memory_fd})
    if (fd >= 0) close(fd);
}

TEST(CleanedFolderOf, AProcessThatIsKickedWakesIt) {
  TemporaryNode node;
  std::atomic<int> calls{0};
  const ScopedMembership member(
      node.path(),
      [](void* count) -> int64_t {
        static_cast<std::atomic<int>*>(count)->fetch_add(1);
        return -1;
      },
      &calls);
  ASSERT_EQ(member.error, 0);
  fs::remove_all(node.path());
  const int before = calls.load();
  EXPECT_TRUE(kick_slot(member.membership.directory(), node.path(), member.membership.slot(),
                        member.membership.generation()));
  EXPECT_TRUE(eventually([&] { return calls.load() > before; }));
}

TEST_F(CleanedFolder, TakesNewFifos) {
  clean();
  FifoEnd fifo;
  EXPECT_EQ(old_.membership.make_fifo(fifo, "c1"), 0);
  EXPECT_TRUE(fs::is_fifo(old_.membership.folder() + "/c1"));
}

TEST_F(CleanedFolder, KeepsItsLocks) {
  const TableLock held(node_.directory(), NodeTable::kXrc, kLockPatience);
  ASSERT_EQ(held.error(), 0);
  clean();
  EXPECT_EQ(TableLock(old_.membership.directory(), NodeTable::kXrc, std::chrono::milliseconds(0)).error(),
            ETIMEDOUT);
  EXPECT_EQ(TableLock(old_.membership.directory(), NodeTable::kEvents, std::chrono::milliseconds(0)).error(),
            0);
}

TEST_F(CleanedFolder,
       IsSparedWhileAProcessIsAMember) {  // by a cleaner that looks for locks, as systemd-tmpfiles does
  const int folder = open(node_.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  EXPECT_NE(flock(folder, LOCK_EX | LOCK_NB), 0);
  close(folder);
}

TEST_F(CleanedFolder, IsMendedFileByFile) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(node_.path()))
    if (entry.path().string().find("/slots/") == std::string::npos && !entry.is_directory())
      files.push_back(entry.path());
  ASSERT_GT(files.size(), 50u);
  // The last one: it stays without a name.
  std::stable_partition(files.begin(), files.end(),
                        [](const fs::path& file) { return file.filename() != "directory"; });
  for (const fs::path& file : files) {
    ASSERT_TRUE(fs::remove(file));
    std::string problem;
    ASSERT_EQ(ensure_node(node_.path(), {.count = 2}, &problem), 0) << file << ": " << problem;
    if (file.filename() != "directory") {
      EXPECT_TRUE(fs::exists(fs::symlink_status(file))) << file;
    }
    NodeDirectory directory;
    ASSERT_EQ(directory.open(directory_path(node_.path()).c_str()), 0) << file;
    ASSERT_EQ(directory.header().node_id, node_.directory().header().node_id) << file;
  }
}

}  // namespace
}  // namespace verbena
