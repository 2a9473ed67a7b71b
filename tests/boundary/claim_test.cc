// SPDX-License-Identifier: BSD-2-Clause
#include <errno.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "device.h"

namespace verbena::testing {
namespace {

TEST_F(ClaimedDevice, WriteReachesTheHandler) {
  ASSERT_EQ(write(fd_, "command", 7), 7);
  EXPECT_EQ(recorder_.last, "command");
}

TEST_F(ClaimedDevice, HandlersErrnoIsWritesErrno) {
  const verbena_boundary_handler refusing = {[](void*, const void*, size_t) -> ssize_t {
                                               errno = EPROTO;
                                               return -1;
                                             },
                                             nullptr};
  const int fd = open_device();
  ASSERT_EQ(claim(fd, refusing), 0);
  errno = 0;
  EXPECT_EQ(write(fd, "x", 1), -1);
  EXPECT_EQ(errno, EPROTO);
  close(fd);
}

TEST_F(ClaimedDevice, AnOrdinaryWriteLeavesErrnoAlone) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  errno = E2BIG;
  EXPECT_EQ(write(pipe_ends[1], "x", 1), 1);
  EXPECT_EQ(errno, E2BIG);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

TEST_F(ClaimedDevice, ReleaseEndsTheClaim) {
  release(fd_);
  EXPECT_EQ(write(fd_, "command", 7), -1);
  EXPECT_EQ(errno, ENOSPC);
  EXPECT_EQ(recorder_.commands.load(), 0);
}

TEST(Claim, UnclaimedCommandsFail) {
  const int fd = open_device();
  EXPECT_EQ(write(fd, "command", 7), -1);
  EXPECT_EQ(errno, ENOSPC);
  close(fd);
}

TEST(Claim, FilesThatTheBoundaryDidNotOpenAreRefused) {
  Recorder recorder;
  const int full = open("/dev/full", O_RDWR | O_CLOEXEC);
  EXPECT_EQ(claim(full, recorder.handler()), EBADF);
  EXPECT_EQ(claim(1, recorder.handler()), EBADF);
  EXPECT_EQ(claim(-1, recorder.handler()), EBADF);
  close(full);
}

TEST(Claim, AClosedDescriptorIsRefused) {
  Recorder recorder;
  const int fd = open_device();
  close(fd);
  EXPECT_EQ(claim(fd, recorder.handler()), EBADF);
}

TEST(DeviceFile, DescriptorIsACharacterDeviceWithTheNumberOfTheTree) {
  const int fd = open_device();
  struct stat status;
  ASSERT_EQ(fstat(fd, &status), 0);
  EXPECT_TRUE(S_ISCHR(status.st_mode));
  EXPECT_EQ(status.st_rdev, makedev(1, 7));
  close(fd);
}

TEST(DeviceFile, IoctlSaysThatItIsNoTerminal) {
  const int fd = open_device();
  int argument = 0;
  EXPECT_EQ(ioctl(fd, _IOWR(0x1b, 1, int), &argument), -1);
  EXPECT_EQ(errno, ENOTTY);
  close(fd);
}

TEST(DeviceFile, OpensOnlyWhatTheNodeHas) {
  EXPECT_EQ(open("/dev/infiniband/uverbs1", O_RDWR), -1);
  EXPECT_EQ(errno, ENOENT);
}

TEST(DeviceFile, ConnectionManagerIsThereWhereTheNodeHasItOnly) {
  EXPECT_EQ(open("/dev/infiniband/rdma_cm", O_RDWR), -1);
  EXPECT_EQ(errno, ENOENT);
}

TEST(DeviceFile, ExistsAlready) {
  EXPECT_EQ(open(kDevice, O_RDWR | O_CREAT | O_EXCL, 0600), -1);
  EXPECT_EQ(errno, EEXIST);
}

TEST(DeviceFile, IsNoFolder) {
  EXPECT_EQ(open(kDevice, O_RDONLY | O_DIRECTORY), -1);
  EXPECT_EQ(errno, ENOTDIR);
}

TEST(DeviceFile, CreatingWhatIsThereOpensIt) {
  Recorder recorder;
  const int fd = open(kDevice, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(claim(fd, recorder.handler()), 0);
  close(fd);
}

TEST(DeviceFile, KeepsTheCallersFlags) {
  const int fd = open(kDevice, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  EXPECT_EQ(fcntl(fd, F_GETFL) & (O_ACCMODE | O_NONBLOCK), O_WRONLY | O_NONBLOCK);
  EXPECT_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
  close(fd);
}

}  // namespace
}  // namespace verbena::testing
