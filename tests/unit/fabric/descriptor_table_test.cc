// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/descriptor_table.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "unit/common/child.h"

namespace verbena {
namespace {

TEST(OwnDescriptors, AreClosedAfterwardsAndMappingsStay) {
  const int file = memfd_create("file", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(file, 4096), 0);
  const std::string name = "/proc/self/fd/" + std::to_string(file);
  int opened = -1;
  void* memory = MAP_FAILED;
  ASSERT_TRUE(with_own_descriptors([&] {
    opened = open(name.c_str(), O_RDWR | O_CLOEXEC);
    memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0);
  }));
  ASSERT_GE(opened, 0);
  EXPECT_EQ(fcntl(opened, F_GETFD), -1);
  ASSERT_NE(memory, MAP_FAILED);
  *static_cast<char*>(memory) = 'x';
  char byte = 0;
  EXPECT_EQ(pread(file, &byte, 1, 0), 1);
  EXPECT_EQ(byte, 'x');
  munmap(memory, 4096);
  close(file);
}

// fcntl(2): "If a process closes any file descriptor referring to a file, then all of the process's locks on
// that file are released".
TEST(OwnDescriptors, LeaveTheLocksOfTheProcessAlone) {
  const int file = memfd_create("locked", MFD_CLOEXEC);
  struct flock whole {};
  whole.l_type = F_WRLCK;
  ASSERT_EQ(fcntl(file, F_SETLK, &whole), 0);
  const std::string name = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file);
  ASSERT_TRUE(with_own_descriptors([&] { close(open(name.c_str(), O_RDWR | O_CLOEXEC)); }));
  Child other([&](const Child&) {
    const int again = open(name.c_str(), O_RDWR | O_CLOEXEC);
    return again >= 0 && fcntl(again, F_SETLK, &whole) != 0 ? 0 : 1;
  });
  EXPECT_EQ(other.finish(), 0);
  close(file);
}

TEST(OwnDescriptors, LeaveNoChildBehind) {
  ASSERT_TRUE(with_own_descriptors([] {}));
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG | __WALL), -1);
  EXPECT_EQ(errno, ECHILD);
}

}  // namespace
}  // namespace verbena
