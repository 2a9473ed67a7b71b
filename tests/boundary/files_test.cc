// SPDX-License-Identifier: BSD-2-Clause
//
// What a program sees of the node's tree through each function that takes a path.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <gtest/gtest.h>
#include <limits.h>
#include <linux/netlink.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "node_fixture.h"
#include "run.h"

extern "C" {
int __open_2(const char*, int);
int __open64_2(const char*, int);
int __openat_2(int, const char*, int);
int __openat64_2(int, const char*, int);
int __xstat(int, const char*, struct stat*);
int __lxstat(int, const char*, struct stat*);
int __fxstatat(int, int, const char*, struct stat*, int);
int __xstat64(int, const char*, struct stat64*);
int __lxstat64(int, const char*, struct stat64*);
int __fxstatat64(int, int, const char*, struct stat64*, int);
}

namespace verbena::testing {
namespace {

// A stream for freopen(3), which does not free it when it fails: kept reachable for leak checkers.
FILE* spare_stream() {
  static auto& all = *new std::vector<FILE*>;  // never destroyed: leak checkers do not need it
  all.push_back(tmpfile());
  return all.back();
}

constexpr char kGuidFile[] = "/sys/class/infiniband/verbena0/node_guid";
constexpr char kDevice[] = "/dev/infiniband/uverbs0";
constexpr char kNothing[] = "/sys/class/infiniband/mlx5_0/node_guid";
#if defined(__x86_64__)
constexpr int kStatVersion = 1;
#else
constexpr int kStatVersion = 0;
#endif

const std::string kGuidLine = std::string(kNodeGuid) + "\n";

// ---- every way to open ----

struct Opener {
  const char* name;
  std::function<int(const char*)> open;
};
void PrintTo(const Opener& o, std::ostream* out) { *out << o.name; }
std::string name_of(const auto& instance) { return instance.param.name; }

int fd_of(FILE* file) {
  if (file == nullptr) return -1;
  const int fd = dup(fileno(file));
  fclose(file);
  return fd;
}

class Open : public ::testing::TestWithParam<Opener> {};

TEST_P(Open, ReadsTheNodesFile) {
  const int fd = GetParam().open(kGuidFile);
  ASSERT_GE(fd, 0);
  char text[64];
  const ssize_t size = read(fd, text, sizeof text);
  close(fd);
  ASSERT_GT(size, 0);
  EXPECT_EQ(std::string(text, static_cast<size_t>(size)), kGuidLine);
}

TEST_P(Open, OpensTheDevice) {
  const int fd = GetParam().open(kDevice);
  struct stat status;
  ASSERT_EQ(fstat(fd, &status), 0);
  EXPECT_EQ(status.st_rdev, makedev(1, 7));
  close(fd);
}

TEST_P(Open, WhatTheNodeLacksIsNotThere) {
  errno = 0;
  EXPECT_EQ(GetParam().open(kNothing), -1);
  EXPECT_EQ(errno, ENOENT);
}

INSTANTIATE_TEST_SUITE_P(
    Family, Open,
    ::testing::Values(Opener{"open", [](const char* p) { return open(p, O_RDONLY); }},
                      Opener{"open64", [](const char* p) { return open64(p, O_RDONLY); }},
                      Opener{"open_2", [](const char* p) { return __open_2(p, O_RDONLY); }},
                      Opener{"open64_2", [](const char* p) { return __open64_2(p, O_RDONLY); }},
                      Opener{"openat", [](const char* p) { return openat(AT_FDCWD, p, O_RDONLY); }},
                      Opener{"openat64", [](const char* p) { return openat64(AT_FDCWD, p, O_RDONLY); }},
                      Opener{"openat_2", [](const char* p) { return __openat_2(AT_FDCWD, p, O_RDONLY); }},
                      Opener{"openat64_2", [](const char* p) { return __openat64_2(AT_FDCWD, p, O_RDONLY); }},
                      Opener{"fopen", [](const char* p) { return fd_of(fopen(p, "r")); }},
                      Opener{"fopen64", [](const char* p) { return fd_of(fopen64(p, "r")); }},
                      Opener{"freopen", [](const char* p) { return fd_of(freopen(p, "r", spare_stream())); }},
                      Opener{"freopen64", [](const char* p) { return fd_of(freopen64(p, "r", spare_stream())); }}),
    [](const auto& instance) { return name_of(instance); });

// ---- every way to stat ----

struct Stater {
  const char* name;
  std::function<int(const char*, mode_t*, dev_t*)> stat;
};
void PrintTo(const Stater& s, std::ostream* out) { *out << s.name; }

template <typename Status>
int told(int result, const Status& status, mode_t* mode, dev_t* device) {
  *mode = status.st_mode;
  *device = status.st_rdev;
  return result;
}

class Stat : public ::testing::TestWithParam<Stater> {
 protected:
  mode_t mode_ = 0;
  dev_t device_ = 0;
};

TEST_P(Stat, SeesTheNodesFile) {
  ASSERT_EQ(GetParam().stat(kGuidFile, &mode_, &device_), 0);
  EXPECT_TRUE(S_ISREG(mode_));
}

TEST_P(Stat, DeviceIsACharacterDeviceWithTheNumberOfTheTree) {
  ASSERT_EQ(GetParam().stat(kDevice, &mode_, &device_), 0);
  EXPECT_TRUE(S_ISCHR(mode_));
  EXPECT_EQ(device_, makedev(1, 7));
}

TEST_P(Stat, WhatTheNodeLacksIsNotThere) {
  errno = 0;
  EXPECT_EQ(GetParam().stat(kNothing, &mode_, &device_), -1);
  EXPECT_EQ(errno, ENOENT);
  errno = 0;
  EXPECT_EQ(GetParam().stat("/dev/infiniband/uverbs7", &mode_, &device_), -1);
  EXPECT_EQ(errno, ENOENT);
}

#define STATER(label, type, call)                           \
  Stater {                                                  \
    label, [](const char* p, mode_t* mode, dev_t* device) { \
      type s{};                                             \
      const int result = call;                              \
      return told(result, s, mode, device);                 \
    }                                                       \
  }

INSTANTIATE_TEST_SUITE_P(
    Family, Stat,
    ::testing::Values(STATER("stat", struct stat, stat(p, &s)), STATER("lstat", struct stat, lstat(p, &s)),
                      STATER("stat64", struct stat64, stat64(p, &s)),
                      STATER("lstat64", struct stat64, lstat64(p, &s)),
                      STATER("fstatat", struct stat, fstatat(AT_FDCWD, p, &s, 0)),
                      STATER("fstatat64", struct stat64, fstatat64(AT_FDCWD, p, &s, AT_SYMLINK_NOFOLLOW)),
                      STATER("xstat", struct stat, __xstat(kStatVersion, p, &s)),
                      STATER("lxstat", struct stat, __lxstat(kStatVersion, p, &s)),
                      STATER("fxstatat", struct stat, __fxstatat(kStatVersion, AT_FDCWD, p, &s, 0)),
                      STATER("xstat64", struct stat64, __xstat64(kStatVersion, p, &s)),
                      STATER("lxstat64", struct stat64, __lxstat64(kStatVersion, p, &s)),
                      STATER("fxstatat64", struct stat64, __fxstatat64(kStatVersion, AT_FDCWD, p, &s, 0)),
                      Stater{"statx",
                             [](const char* p, mode_t* mode, dev_t* device) {
                               struct statx s {};
                               const int result = statx(AT_FDCWD, p, 0, STATX_BASIC_STATS, &s);
                               *mode = s.stx_mode;
                               *device = makedev(s.stx_rdev_major, s.stx_rdev_minor);
                               return result;
                             }}),
    [](const auto& instance) { return name_of(instance); });

// ---- the others ----

TEST(Access, SaysWhatTheNodeHas) {
  for (const char* path : {kGuidFile, kDevice}) {
    EXPECT_EQ(access(path, R_OK), 0) << path;
    EXPECT_EQ(faccessat(AT_FDCWD, path, R_OK, 0), 0) << path;
    EXPECT_EQ(euidaccess(path, R_OK), 0) << path;
    EXPECT_EQ(eaccess(path, R_OK), 0) << path;
  }
  EXPECT_EQ(access(kNothing, F_OK), -1);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(access(kDevice, R_OK | W_OK), 0);
}

std::set<std::string> names_in(const char* path) {
  std::set<std::string> names;
  DIR* folder = opendir(path);
  if (folder == nullptr) return names;
  while (const dirent* entry = readdir(folder))
    if (entry->d_name[0] != '.') names.insert(entry->d_name);
  closedir(folder);
  return names;
}

TEST(Folders, OpendirListsTheNodes) {
  EXPECT_EQ(names_in("/sys/class/infiniband"), std::set<std::string>{"verbena0"});
  EXPECT_EQ(names_in("/dev/infiniband"), std::set<std::string>{"uverbs0"});
}

TEST(Folders, ScandirListsTheNodes) {
  dirent** names = nullptr;
  const int count = scandir("/sys/class/infiniband", &names, nullptr, alphasort);
  ASSERT_EQ(count, 3);
  EXPECT_STREQ(names[2]->d_name, "verbena0");
  for (int i = 0; i < count; ++i) free(names[i]);
  free(names);
}

TEST(Folders, GlobFindsTheNodesFilesUnderTheMachinesNames) {
  glob_t found{};
  ASSERT_EQ(glob("/sys/class/infiniband/*/node_guid", 0, nullptr, &found), 0);
  ASSERT_EQ(found.gl_pathc, 1u);
  EXPECT_STREQ(found.gl_pathv[0], kGuidFile);
  globfree(&found);
}

TEST(Folders, ARelativePathBelowAnOpenFolderWorks) {
  const int folder = open("/sys/class/infiniband_verbs", O_RDONLY | O_DIRECTORY);
  const int fd = openat(folder, "uverbs0/ibdev", O_RDONLY);
  EXPECT_GE(fd, 0);
  close(fd);
  close(folder);
}

TEST(Folders, ARelativePathIntoTheNodeWorks) {
  const int folder = open("/sys/class", O_RDONLY | O_DIRECTORY);
  struct stat status;
  EXPECT_EQ(fstatat(folder, "infiniband/verbena0", &status, 0), 0);
  close(folder);
}

TEST(Folders, TheDeviceIsADeviceFromItsOpenFolderToo) {
  const int folder = open("/dev/infiniband", O_RDONLY | O_DIRECTORY);
  struct stat status;
  ASSERT_EQ(fstatat(folder, "uverbs0", &status, AT_SYMLINK_NOFOLLOW), 0);
  EXPECT_TRUE(S_ISCHR(status.st_mode));
  close(folder);
}

TEST(Folders, ChdirEntersTheNode) {
  char before[PATH_MAX];
  ASSERT_NE(getcwd(before, sizeof before), nullptr);
  ASSERT_EQ(chdir("/sys/class/infiniband/verbena0"), 0);
  EXPECT_EQ(access("node_guid", F_OK), 0);
  EXPECT_EQ(chdir(before), 0);
}

std::string resolved(const char* path) {
  char* text = realpath(path, nullptr);
  const std::string result = text != nullptr ? text : "";
  free(text);
  return result;
}

TEST(Links, RealpathStaysInTheMachinesNames) {
  EXPECT_EQ(resolved("/sys/class/infiniband/verbena0/device"), "/sys/class/infiniband/verbena0/device");
  EXPECT_EQ(resolved("/sys/class/infiniband_verbs/uverbs0/device"), "/sys/class/infiniband/verbena0/device");
  EXPECT_EQ(resolved("/sys/class/infiniband_verbs/uverbs0/device/.."), "/sys/class/infiniband/verbena0");
  EXPECT_EQ(resolved(kDevice), kDevice);
  EXPECT_EQ(resolved("/sys/class/infiniband/verbena0/../.."), "/sys/class");
  EXPECT_EQ(resolved(kNothing), "");
}

TEST(Links, CanonicalizeFileNameSaysTheSame) {
  char* text = canonicalize_file_name("/sys/class/infiniband_verbs/uverbs0/device");
  EXPECT_STREQ(text, "/sys/class/infiniband/verbena0/device");
  free(text);
}

TEST(Links, RealpathFillsTheCallersBuffer) {
  char buffer[PATH_MAX];
  EXPECT_EQ(realpath(kGuidFile, buffer), buffer);
  EXPECT_STREQ(buffer, kGuidFile);
}

TEST(Links, ReadlinkAnswersTheText) {
  char text[PATH_MAX];
  const ssize_t size = readlink("/sys/class/infiniband_verbs/uverbs0/device", text, sizeof text);
  ASSERT_GT(size, 0);
  EXPECT_EQ(std::string(text, static_cast<size_t>(size)), "../../infiniband/verbena0/device");
}

TEST(Links, ReadlinkCutsTheTextToTheBuffer) {
  char text[5];
  EXPECT_EQ(readlinkat(AT_FDCWD, "/sys/class/infiniband_verbs/uverbs0/device", text, sizeof text), 5);
  EXPECT_EQ(std::string(text, 5), "../..");
}

TEST(Links, NoTextNamesTheNode) {
  char text[PATH_MAX];
  const ssize_t size = readlink("/sys/class/infiniband_verbs/absolute", text, sizeof text);
  ASSERT_GT(size, 0);
  EXPECT_EQ(std::string(text, static_cast<size_t>(size)), "/sys/class/infiniband/verbena0");
}

TEST(Links, TheDeviceIsNoLink) {
  char text[8];
  EXPECT_EQ(readlink(kDevice, text, sizeof text), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST(Paths, OddWritingsMeanTheSame) {
  for (const char* path :
       {"//sys/class//infiniband/verbena0/node_guid", "/sys/./class/infiniband/./verbena0/node_guid",
        "/sys/class/net/../infiniband/verbena0/node_guid",
        "/sys/class/infiniband/verbena0/ports/../node_guid"})
    EXPECT_EQ(contents(path), kGuidLine) << path;
}

TEST(Paths, TheWayOutLeadsToTheMachine) {
  struct stat direct;
  struct stat detour;
  ASSERT_EQ(stat("/sys/class/net", &direct), 0);
  ASSERT_EQ(stat("/sys/class/infiniband/verbena0/../../net", &detour), 0);
  EXPECT_EQ(direct.st_ino, detour.st_ino);
}

TEST(Paths, ANullPathIsTheKernelsToRefuse) {
  // Through a pointer without the nonnull attribute.
  int (*volatile call)(const char*, int) = access;
  EXPECT_EQ(call(nullptr, F_OK), -1);
  EXPECT_EQ(errno, EFAULT);
}

TEST(Paths, SuccessLeavesErrnoAlone) {
  struct stat status;
  errno = E2BIG;
  EXPECT_EQ(stat(kDevice, &status), 0);
  EXPECT_EQ(errno, E2BIG);
}

TEST(ReadOnly, NothingCanBeMade) {
  EXPECT_EQ(open("/sys/class/infiniband/new", O_CREAT | O_WRONLY, 0600), -1);
  EXPECT_EQ(errno, EACCES);
  EXPECT_EQ(fopen("/sys/class/infiniband/new", "w"), nullptr);
  EXPECT_EQ(errno, EACCES);
  EXPECT_EQ(creat("/dev/infiniband/new", 0600), -1);
  EXPECT_EQ(errno, EACCES);
  EXPECT_EQ(access("/sys/class/infiniband/new", F_OK), -1);
}

TEST(ReadOnly, NothingCanBeWritten) {
  EXPECT_EQ(open(kGuidFile, O_WRONLY | O_TRUNC), -1);
  EXPECT_EQ(errno, EACCES);
  EXPECT_EQ(open(kGuidFile, O_RDONLY | O_TRUNC), -1);
  EXPECT_EQ(errno, EACCES);
  EXPECT_EQ(fopen(kGuidFile, "r+"), nullptr);
  EXPECT_EQ(errno, EACCES);
  EXPECT_EQ(contents(kGuidFile), kGuidLine);
}

// This node is a tree of files only. Programs then read them.
TEST(Netlink, RdmaIsRefusedIfTheNodeCannotBeRead) {
  EXPECT_EQ(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA), -1);
  EXPECT_EQ(errno, EPROTONOSUPPORT);
}

TEST(Netlink, OthersAreNot) {
  const int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  EXPECT_GE(fd, 0);
  close(fd);
}

}  // namespace
}  // namespace verbena::testing
