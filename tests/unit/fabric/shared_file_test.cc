// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/shared_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace verbena {
namespace {

// As proc(5) shows them.
constexpr const char* kMaps =
    "00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/dbus-daemon\n"
    "7f0000000000-7f0000004000 rw-s 00001000 00:01 1025                       /memfd:a b (deleted)\n"
    "7f0000004000-7f0000008000 rw-s 00005000 00:01 1025                       /memfd:a b (deleted)\n"
    "7f0000008000-7f0000009000 rw-s 00000000 00:01 1026                       /memfd:other (deleted)\n"
    "7f0000009000-7f000000a000 rw-s 00001000 00:01 1026                       /memfd:other (deleted)\n"
    "7f000000b000-7f000000c000 rw-p 00000000 00:00 0 \n"
    "7ffc2ba04000-7ffc2ba25000 rw-p 00000000 00:00 0                          [stack]\n";
constexpr uint64_t kA = 0x7f0000000000;

TEST(SharedFile, IsFoundAcrossMappingsThatFollowEachOther) {
  SharedFile file;
  ASSERT_TRUE(find_shared_file(kMaps, kA + 0x10, 0x7000, &file));
  EXPECT_EQ(file.device, makedev(0, 1));
  EXPECT_EQ(file.inode, 1025u);
  EXPECT_EQ(file.offset, 0x1010u);
  EXPECT_EQ(file.begin, kA);
  EXPECT_EQ(file.end, kA + 0x4000);
  EXPECT_EQ(file.path, "/memfd:a b (deleted)");
  ASSERT_TRUE(find_shared_file(kMaps, kA + 0x5000, 1, &file));
  EXPECT_EQ(file.offset, 0x6000u);
}

struct NoFile {
  const char* what;
  uint64_t address, length;
};

TEST(SharedFile, IsNotFoundElsewhere) {
  const NoFile kRows[] = {
      {"private mapping of a file", 0x400000, 16},
      {"two files", kA + 0x7000, 0x1001},
      {"ends in a gap", kA + 0x9000, 0x1001},
      {"begins in a gap", kA + 0xa000, 16},
      {"private memory", kA + 0xb000, 16},
      {"beyond the last mapping", 0x7ffc2ba25000, 16},
      {"no byte", kA, 0},
      {"far too long", kA, UINT64_MAX - kA},
  };
  SharedFile file;
  for (const NoFile& row : kRows)
    EXPECT_FALSE(find_shared_file(kMaps, row.address, row.length, &file)) << row.what;
  for (const char* text : {"", "\n\n", "7f", "7f0000000000-", "7f0000000000-7f0000004000 rw-s", "x-y z"})
    EXPECT_FALSE(find_shared_file(text, kA, 1, &file)) << text;
}

class OwnMapping : public ::testing::Test {
 protected:
  void SetUp() override {
    fd_ = memfd_create("mapping", MFD_CLOEXEC);
    ASSERT_EQ(ftruncate(fd_, kSize), 0);
    memory_ = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    ASSERT_NE(memory_, MAP_FAILED);
    *static_cast<char*>(memory_) = 1;
  }
  void TearDown() override {
    munmap(memory_, kSize);
    close(fd_);
  }
  uint64_t address() const { return reinterpret_cast<uint64_t>(memory_); }

  static constexpr size_t kSize = 65536;
  int fd_ = -1;
  void* memory_ = nullptr;
};

TEST_F(OwnMapping, IsFoundWithItsDescriptor) {
  SharedFile file;
  ASSERT_TRUE(find_shared_file(address() + 8, kSize - 8, &file));
  struct stat status;
  ASSERT_EQ(fstat(fd_, &status), 0);
  EXPECT_EQ(file.device, status.st_dev);
  EXPECT_EQ(file.inode, status.st_ino);
  EXPECT_EQ(file.offset, 8u);
  EXPECT_EQ(find_open_descriptor(file, true), fd_);
  EXPECT_EQ(find_open_descriptor(file, false), fd_);
}

TEST_F(OwnMapping, ADescriptorForReadingDoesNotDoForWriting) {
  const std::string name = "/proc/self/fd/" + std::to_string(fd_);
  const int reading = open(name.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(reading, 0);
  close(fd_);
  fd_ = reading;
  SharedFile file;
  ASSERT_TRUE(find_shared_file(address(), kSize, &file));
  EXPECT_EQ(find_open_descriptor(file, true), -1);
  EXPECT_EQ(find_open_descriptor(file, false), reading);
}

TEST_F(OwnMapping, IsAFilePage) {
  EXPECT_TRUE(is_file_page(address()));
  const std::vector<char> own(65536, 1);
  EXPECT_FALSE(is_file_page(reinterpret_cast<uint64_t>(own.data()) + 4096));
}

}  // namespace
}  // namespace verbena
