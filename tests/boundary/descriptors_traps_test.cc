// SPDX-License-Identifier: BSD-2-Clause
//
// Changes of a descriptor that the boundary does not see. Each of these has been a real bug.
#include <errno.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cstdlib>
#include <thread>
#include <vector>

#include "device.h"
#include "run.h"

namespace verbena::testing {
namespace {

// An unnamed file whose text can be read back.
class Log {
 public:
  Log() : file_(tmpfile()) {}
  ~Log() { fclose(file_); }
  int fd() const { return fileno(file_); }
  std::string text() const {
    char buffer[256];
    const ssize_t size = pread(fd(), buffer, sizeof buffer, 0);
    return size < 0 ? "" : std::string(buffer, static_cast<size_t>(size));
  }

 private:
  FILE* file_;
};

int exit_status(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(ClaimedDevice, VforkChildsCloseLeavesTheParentsClaim) {
  const pid_t child = vfork();
  if (child == 0) {
    close(fd_);
    _exit(0);
  }
  ASSERT_EQ(exit_status(child), 0);
  EXPECT_TRUE(answers());
}

TEST_F(ClaimedDevice, VforkChildsDup2SendsItsTextToTheLog) {
  const Log log;
  const pid_t child = vfork();
  if (child == 0) {
    dup2(log.fd(), fd_);
    _exit(write(fd_, "text", 4) == 4 ? 0 : 1);
  }
  ASSERT_EQ(exit_status(child), 0);
  EXPECT_EQ(log.text(), "text");
  EXPECT_EQ(recorder_.commands.load(), 0);
  EXPECT_TRUE(answers());
}

TEST_F(ClaimedDevice, VforkChildsOwnOpenLeavesTheParentsClaim) {
  const pid_t child = vfork();
  if (child == 0) {
    close(fd_);
    _exit(open(kDevice, O_RDWR) == fd_ ? 0 : 1);
  }
  ASSERT_EQ(exit_status(child), 0);
  EXPECT_TRUE(answers());
}

TEST_F(ClaimedDevice, VforkChildIsInert) {
  const pid_t child = vfork();
  if (child == 0) _exit(write(fd_, "command", 7) == -1 && errno == ENOSPC ? 0 : 1);
  EXPECT_EQ(exit_status(child), 0);
  EXPECT_EQ(recorder_.commands.load(), 0);
}

TEST_F(ClaimedDevice, Dup2OverItSendsTextToTheLog) {
  const Log log;
  dup2(log.fd(), fd_);
  EXPECT_EQ(write(fd_, "text", 4), 4);
  EXPECT_EQ(log.text(), "text");
  EXPECT_EQ(recorder_.commands.load(), 0);
}

TEST_F(ClaimedDevice, RawDup2OverItSendsTextToTheLog) {
  const Log log;
  syscall(SYS_dup3, log.fd(), fd_, 0);
  EXPECT_EQ(write(fd_, "text", 4), 4);
  EXPECT_EQ(log.text(), "text");
  EXPECT_EQ(recorder_.commands.load(), 0);
}

TEST_F(ClaimedDevice, TheProgramsOwnDevFullInItsPlaceIsNotADevice) {
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  syscall(SYS_dup3, full, fd_, 0);
  EXPECT_EQ(write(fd_, "text", 4), -1);
  EXPECT_EQ(errno, ENOSPC);
  EXPECT_EQ(recorder_.commands.load(), 0);
  close(full);
}

TEST_F(ClaimedDevice, AnotherDeviceDuppedOverItAnswersInItsPlace) {
  Recorder other;
  const int fd = open_device();
  ASSERT_EQ(claim(fd, other.handler()), 0);
  dup2(fd, fd_);
  EXPECT_EQ(write(fd_, "command", 7), 7);
  EXPECT_EQ(other.commands.load(), 1);
  EXPECT_EQ(recorder_.commands.load(), 0);
  close(fd);
}

TEST_F(ClaimedDevice, CopyBehavesAsTheOriginal) {
  const int copy = dup(fd_);
  EXPECT_EQ(write(copy, "command", 7), 7);
  EXPECT_EQ(recorder_.commands.load(), 1);
  close(copy);
}

TEST_F(ClaimedDevice, CopyByFcntlBehavesAsTheOriginal) {
  const int copy = fcntl(fd_, F_DUPFD_CLOEXEC, 100);
  ASSERT_GE(copy, 100);
  EXPECT_EQ(write(copy, "command", 7), 7);
  EXPECT_EQ(recorder_.commands.load(), 1);
  close(copy);
}

TEST_F(ClaimedDevice, CopyOutlivesTheOriginal) {
  const int copy = dup(fd_);
  close(fd_);
  EXPECT_EQ(write(copy, "command", 7), 7);
  EXPECT_EQ(recorder_.commands.load(), 1);
  close(copy);
}

TEST_F(ClaimedDevice, ClaimOfACopyIsItsOwn) {
  Recorder imported;
  const int copy = dup(fd_);
  ASSERT_EQ(claim(copy, imported.handler()), 0);
  EXPECT_EQ(write(copy, "command", 7), 7);
  EXPECT_EQ(imported.commands.load(), 1);
  EXPECT_TRUE(answers());
  release(copy);
  close(copy);
}

TEST_F(ClaimedDevice, ReleaseOfTheOriginalSilencesItsCopies) {
  const int copy = dup(fd_);
  release(fd_);
  EXPECT_EQ(write(copy, "command", 7), -1);
  EXPECT_EQ(recorder_.commands.load(), 0);
  close(copy);
}

TEST_F(ClaimedDevice, ForkedChildIsInert) {
  const pid_t child = fork();
  if (child == 0) _exit(write(fd_, "command", 7) == -1 && errno == ENOSPC ? 0 : 1);
  EXPECT_EQ(exit_status(child), 0);
  EXPECT_TRUE(answers());
}

TEST_F(ClaimedDevice, ForkedChildMayOpenAgain) {
  const pid_t child = fork();
  if (child == 0) {
    Recorder own;
    close(fd_);
    const int fd = open(kDevice, O_RDWR);
    const bool good = claim(fd, own.handler()) == 0 && write(fd, "command", 7) == 7 && own.commands == 1;
    _exit(good ? 0 : 1);
  }
  EXPECT_EQ(exit_status(child), 0);
}

TEST_F(ClaimedDevice, ForkedChildCannotClaimWhatItInherited) {
  const pid_t child = fork();
  if (child == 0) _exit(claim(fd_, recorder_.handler()) == EBADF ? 0 : 1);
  EXPECT_EQ(exit_status(child), 0);
}

TEST_F(ClaimedDevice, ExecutedProgramIsInert) {
  const int copy = fcntl(fd_, F_DUPFD, 3);  // without FD_CLOEXEC
  ASSERT_LT(copy, 10);                      // sh knows one digit
  const Outcome outcome = run("echo command >&" + std::to_string(copy));
  EXPECT_NE(outcome.status, 0) << outcome.output;
  EXPECT_EQ(recorder_.commands.load(), 0);
  close(copy);
}

TEST_F(ClaimedDevice, ReusedNumberIsAnOrdinaryFile) {
  close(fd_);
  const Log log;
  ASSERT_EQ(log.fd(), fd_);
  EXPECT_EQ(write(fd_, "text", 4), 4);
  EXPECT_EQ(log.text(), "text");
  EXPECT_EQ(recorder_.commands.load(), 0);
  fd_ = open_device();
}

TEST_F(ClaimedDevice, NumberReusedByTheDeviceIsUnclaimed) {
  syscall(SYS_close, fd_);
  ASSERT_EQ(open_device(), fd_);
  EXPECT_EQ(write(fd_, "command", 7), -1);
  EXPECT_EQ(errno, ENOSPC);
  EXPECT_EQ(recorder_.commands.load(), 0);
}

// More often than the table has entries; close(2) does not give one back.
TEST_F(ClaimedDevice, TheTableIsNeverUsedUp) {
  for (int i = 0; i < 10'000; ++i) {
    Recorder recorder;
    const int fd = open_device();
    ASSERT_EQ(claim(fd, recorder.handler()), 0) << "open " << i;
    ASSERT_EQ(write(fd, "command", 7), 7);
    ASSERT_EQ(recorder.commands.load(), 1);
    close(fd);
  }
  EXPECT_TRUE(answers());
}

TEST(Descriptors, ThreadsOpenAndCloseAtOnce) {
  std::atomic<int> wrong{0};
  const auto use_devices = [&] {
    for (int i = 0; i < 300; ++i) {
      Recorder recorder;
      const int fd = open(kDevice, O_RDWR | O_CLOEXEC);
      if (claim(fd, recorder.handler()) != 0 || write(fd, "command", 7) != 7 || recorder.commands != 1)
        ++wrong;
      release(fd);
      close(fd);
    }
  };
  const auto use_files = [&] {
    for (int i = 0; i < 300; ++i) {
      int ends[2];
      char got[4];
      if (pipe2(ends, O_CLOEXEC) != 0 || write(ends[1], "text", 4) != 4 || read(ends[0], got, 4) != 4)
        ++wrong;
      close(ends[0]);
      close(ends[1]);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back(use_devices);
    threads.emplace_back(use_files);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
}

}  // namespace
}  // namespace verbena::testing
