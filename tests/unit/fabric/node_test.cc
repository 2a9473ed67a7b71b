// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/node.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "common/new_folder.h"
#include "fabric/node_directory.h"
#include "fabric/slot_folder.h"
#include "unit/common/temporary_folder.h"

namespace verbena {
namespace {

namespace fs = std::filesystem;

class Node : public ::testing::Test {
 protected:
  void SetUp() override { path_ = parent_ + "/n"; }

  int ensure(const DeviceTableOptions& options = {}) { return ensure_node(path_, options, &problem_); }

  timespec device_time() const {
    struct stat status {};
    EXPECT_EQ(stat((path_ + "/sys/class/infiniband/verbena0").c_str(), &status), 0);
    return status.st_mtim;
  }
  uint64_t id() const {
    NodeDirectory directory;
    EXPECT_EQ(directory.open(directory_path(path_).c_str()), 0);
    return directory.header().node_id;
  }
  void overwrite_version(uint32_t version) const {
    const int fd = open(directory_path(path_).c_str(), O_WRONLY | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    ASSERT_EQ(pwrite(fd, &version, sizeof version, offsetof(DirectoryHeader, layout_version)),
              static_cast<ssize_t>(sizeof version));
    close(fd);
  }
  // A process that listens as every adapter does, whatever its version: the name and type of its socket may
  // differ.
  int move_in(uint32_t slot, const std::string& name = "service", int type = SOCK_SEQPACKET) const {
    const std::string folder = slot_folder(path_, slot, 1);
    EXPECT_TRUE(fs::create_directory(folder));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    (folder + "/" + name).copy(address.sun_path, sizeof address.sun_path - 1);
    const int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(type == SOCK_DGRAM ? 0 : listen(fd, 1), 0);
    return fd;
  }

  const TemporaryFolder temporary_;
  std::string parent_ = temporary_.path();
  std::string path_;
  std::string problem_;
};

TEST_F(Node, IsMadeWithTreeDirectoryAndSlots) {
  ASSERT_EQ(ensure(), 0) << problem_;
  EXPECT_TRUE(fs::is_directory(path_ + "/slots"));
  EXPECT_TRUE(fs::is_directory(path_ + "/sys/class/infiniband/verbena0"));
  NodeDirectory directory;
  EXPECT_EQ(directory.open(directory_path(path_).c_str()), 0);
  EXPECT_EQ(directory.devices().count, 1u);
}

TEST_F(Node, IsPrivate) {
  ASSERT_EQ(ensure(), 0) << problem_;
  struct stat status;
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0700u);
}

TEST_F(Node, StaysAsItIsWhenAskedForAgain) {
  ASSERT_EQ(ensure(), 0);
  const uint64_t first = id();
  ASSERT_EQ(ensure(), 0);
  EXPECT_EQ(id(), first);
}

TEST_F(Node, IsMadeOnceByManyAtOnce) {
  int gate[2];
  int results[2];
  ASSERT_EQ(pipe(gate), 0);
  ASSERT_EQ(pipe(results), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < 20; ++i) {
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      close(gate[1]);
      char byte;
      [[maybe_unused]] const ssize_t opened = read(gate[0], &byte, 1);  // end of file: all go on
      std::string problem;
      if (ensure_node(path_, {}, &problem) != 0) _exit(1);
      struct stat status;
      if (stat((path_ + "/sys/class/infiniband/verbena0").c_str(), &status) != 0) _exit(2);
      _exit(write(results[1], &status.st_mtim, sizeof status.st_mtim) == sizeof status.st_mtim ? 0 : 3);
    }
    children.push_back(pid);
  }
  close(gate[0]);
  close(gate[1]);
  close(results[1]);
  for (const pid_t pid : children) {
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
  const timespec last = device_time();
  timespec seen;
  int count = 0;
  while (read(results[0], &seen, sizeof seen) == sizeof seen) {
    ++count;
    EXPECT_EQ(seen.tv_sec, last.tv_sec);
    EXPECT_EQ(seen.tv_nsec, last.tv_nsec);
  }
  close(results[0]);
  EXPECT_EQ(count, 20);
}

TEST_F(Node, IsRebuiltWhenItsDescriptionNoLongerFits) {
  ASSERT_EQ(ensure(), 0);
  const uint64_t first = id();
  ASSERT_EQ(ensure({.count = 2}), 0) << problem_;
  EXPECT_NE(id(), first);
  EXPECT_TRUE(fs::exists(path_ + "/sys/class/infiniband/verbena1"));
}

TEST_F(Node, IsRebuiltWhenPartOfItsTreeIsGone) {
  ASSERT_EQ(ensure(), 0);
  ASSERT_TRUE(fs::remove(path_ + "/sys/class/infiniband_verbs/uverbs0/dev"));
  ASSERT_EQ(ensure(), 0) << problem_;
  EXPECT_TRUE(fs::exists(path_ + "/sys/class/infiniband_verbs/uverbs0/dev"));
}

TEST_F(Node, IsKeptWhileAProcessIsAMember) {
  ASSERT_EQ(ensure(), 0);
  const uint64_t first = id();
  NodeDirectory directory;
  ASSERT_EQ(directory.open(directory_path(path_).c_str()), 0);
  RobustLock lock;
  ASSERT_EQ(lock.try_lock(directory.slot(7).life), 0);
  EXPECT_EQ(ensure({.count = 2}), 0) << problem_;
  EXPECT_EQ(id(), first);
}

TEST_F(Node, IsRebuiltWhenItsLastMemberDied) {
  ASSERT_EQ(ensure(), 0);
  const uint64_t first = id();
  const pid_t pid = fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    NodeDirectory directory;
    if (directory.open(directory_path(path_).c_str()) != 0) _exit(1);
    RobustLock lock;
    lock.try_lock(directory.slot(3).life);
    directory.slot(3).state = SlotState::kLive;
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  ASSERT_EQ(status, 0);
  ASSERT_EQ(ensure({.count = 2}), 0) << problem_;
  EXPECT_NE(id(), first);
}

TEST_F(Node, OfAnotherVersionIsRebuiltWhenItHasNoMember) {
  ASSERT_EQ(ensure(), 0);
  overwrite_version(kLayoutVersion + 1);
  ASSERT_EQ(ensure(), 0) << problem_;
  NodeDirectory directory;
  EXPECT_EQ(directory.open(directory_path(path_).c_str()), 0);
}

TEST_F(Node, OfAnotherVersionIsRefusedByNameWhileItHasAMember) {
  ASSERT_EQ(ensure(), 0);
  overwrite_version(kLayoutVersion + 1);
  const int listener = move_in(5);
  EXPECT_EQ(ensure(), EPROTO);
  EXPECT_NE(problem_.find("layout " + std::to_string(kLayoutVersion + 1)), std::string::npos) << problem_;
  close(listener);
}

TEST_F(Node, OfAnotherVersionHasAMemberWhateverItsSocketsAre) {
  ASSERT_EQ(ensure(), 0);
  overwrite_version(kLayoutVersion + 1);
  const int stream = move_in(5, "segment", SOCK_STREAM);
  EXPECT_EQ(ensure(), EPROTO);
  const int datagrams = move_in(6, "requests", SOCK_DGRAM);
  close(stream);
  EXPECT_EQ(ensure(), EPROTO);
  close(datagrams);
  EXPECT_EQ(ensure(), 0) << problem_;
}

TEST_F(Node, OfAnotherVersionWithADeadSocketIsRebuilt) {
  ASSERT_EQ(ensure(), 0);
  overwrite_version(kLayoutVersion + 1);
  close(move_in(5));
  EXPECT_EQ(ensure(), 0) << problem_;
}

TEST_F(Node, LeavesNothingBesideItself) {
  ASSERT_EQ(ensure(), 0);
  ASSERT_EQ(ensure({.count = 2}), 0);
  const fs::directory_iterator all(parent_);
  EXPECT_EQ(std::distance(begin(all), end(all)), 1);
}

TEST_F(Node, WhatADeadCreatorLeftIsCleared) {
  const std::string left = parent_ + "/.new.1";
  ASSERT_TRUE(fs::create_directories(left + "/sys/class"));
  const timespec long_ago[2] = {{1, 0}, {1, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, left.c_str(), long_ago, 0), 0);
  EXPECT_EQ(ensure(), 0) << problem_;
  EXPECT_FALSE(fs::exists(left));
}

TEST_F(Node, IsRefusedWhenOthersCanReachIn) {
  ASSERT_EQ(ensure(), 0);
  ASSERT_EQ(chmod(path_.c_str(), 0750), 0);
  EXPECT_EQ(ensure(), EPERM);
  EXPECT_NE(problem_.find("mode 0750"), std::string::npos) << problem_;
}

TEST_F(Node, IsRefusedWhenTheFolderAboveIsOpenToOthers) {
  ASSERT_EQ(chmod(parent_.c_str(), 0777), 0);
  EXPECT_EQ(ensure(), EPERM);
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(Node, IsRefusedWhenItBelongsToSomebodyElse) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  ASSERT_EQ(mkdir(path_.c_str(), 0700), 0);
  ASSERT_EQ(chown(path_.c_str(), 12345, 12345), 0);
  EXPECT_EQ(ensure(), EPERM);
  EXPECT_NE(problem_.find("uid 12345"), std::string::npos) << problem_;
}

TEST_F(Node, IsRefusedWhenItIsALink) {
  ASSERT_EQ(mkdir((parent_ + "/elsewhere").c_str(), 0700), 0);
  fs::create_directory_symlink(parent_ + "/elsewhere", path_);
  EXPECT_EQ(ensure(), EPERM);
}

TEST_F(Node, IsRefusedWhenItIsAFile) {
  close(open(path_.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0700));
  EXPECT_EQ(ensure(), EPERM);
}

TEST_F(Node, IsRefusedWhereItsSocketsWouldNotFit) {
  path_ += std::string(kMaxNodePath, 'x');
  EXPECT_EQ(ensure(), ENAMETOOLONG);
}

TEST_F(Node, NeedsAnAbsolutePath) {
  path_ = "somewhere";
  EXPECT_EQ(ensure(), EINVAL);
}

TEST_F(Node, SaysWhatTheFileSystemSays) {
  path_ = "/proc/verbena/n";
  EXPECT_NE(ensure(), 0);
  EXPECT_FALSE(problem_.empty());
}

TEST(NodePath, KeepsNodesWithDifferentOptionsApart) {
  EXPECT_NE(node_path("", {.count = 1}), node_path("", {.count = 2}));
  EXPECT_NE(node_path("", {}), node_path("", {.link_layer = LinkLayer::kInfiniband}));
  EXPECT_NE(node_path("", {}), node_path("a", {}));
}

TEST(NodePath, FollowsTheRuntimeFolderOnlyIfItIsOurs) {
  const std::string folder = test::new_folder("run");
  ASSERT_FALSE(folder.empty());
  setenv("XDG_RUNTIME_DIR", folder.c_str(), 1);
  EXPECT_EQ(nodes_folder(), folder + "/verbena");
  rmdir(folder.c_str());
  setenv("TMPDIR", "/var/tmp", 1);
  EXPECT_EQ(nodes_folder(), "/var/tmp/verbena-" + std::to_string(geteuid()));
  unsetenv("XDG_RUNTIME_DIR");
  unsetenv("TMPDIR");
}

// /tmp is everybody's: what others put there under the usual name denies this user nothing.
TEST(NodePath, TakesAnotherNameIfTheUsualOneIsNotThisUsersFolder) {
  const TemporaryFolder temporary;
  setenv("TMPDIR", temporary.path().c_str(), 1);
  unsetenv("XDG_RUNTIME_DIR");
  const std::string usual = temporary.path() + "/verbena-" + std::to_string(geteuid());
  EXPECT_EQ(nodes_folder(), usual);
  fs::create_directory_symlink("/var/tmp", usual);
  EXPECT_EQ(nodes_folder(), usual + ".1");
  ASSERT_EQ(mkdir((usual + ".1").c_str(), 0755), 0);
  ASSERT_EQ(chmod((usual + ".1").c_str(), 0755), 0);
  EXPECT_EQ(nodes_folder(), usual + ".2");
  std::string problem;
  EXPECT_EQ(ensure_node(node_path("", {}), {}, &problem), 0) << problem;
  EXPECT_EQ(nodes_folder(), usual + ".2");  // found again
  unsetenv("TMPDIR");
}

TEST(NodeName, TakesOnlyWhatIsOneFileNameAndHarmless) {
  for (const char* good : {"a", "job-17", "A_b.c", "abcdefghijklmnopqrstuvwx"})
    EXPECT_TRUE(valid_node_name(good));
  for (const char* bad : {"", ".", "..", ".a", "a/b", "a b", "a\nb", "abcdefghijklmnopqrstuvwxy"})
    EXPECT_FALSE(valid_node_name(bad)) << bad;
}

}  // namespace
}  // namespace verbena
