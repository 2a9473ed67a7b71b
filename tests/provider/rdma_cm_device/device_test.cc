// SPDX-License-Identifier: BSD-2-Clause
//
// /dev/infiniband/rdma_cm as a program under `verbena run` sees it: the descriptor and its copies, other
// processes, raw commands.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <rdma/rdma_user_cm.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <thread>

#include "common/in_child.h"

namespace {

using verbena::test::in_child;

constexpr char kDevice[] = "/dev/infiniband/rdma_cm";

class Device : public ::testing::Test {
 protected:
  void SetUp() override {
    fd_ = open(kDevice, O_RDWR | O_CLOEXEC);
    ASSERT_GE(fd_, 0) << strerror(errno);
  }
  void TearDown() override { close(fd_); }

  // One command; 0 or the errno.
  template <typename Request>
  static int command(int fd, uint32_t number, const Request& request, uint16_t out = 0) {
    struct {
      rdma_ucm_cmd_hdr header;
      alignas(8) uint8_t payload[sizeof(Request)];
    } bytes = {};
    static_assert(offsetof(decltype(bytes), payload) == sizeof(rdma_ucm_cmd_hdr));
    bytes.header = {.cmd = number, .in = sizeof request, .out = out};
    memcpy(bytes.payload, &request, sizeof request);
    return write(fd, &bytes, sizeof bytes.header + sizeof request) < 0 ? errno : 0;
  }
  static int create(int fd, uint32_t* id) {
    rdma_ucm_create_id_resp response = {};
    rdma_ucm_create_id request = {};
    request.uid = 1;
    request.response = reinterpret_cast<uintptr_t>(&response);
    request.ps = RDMA_PS_TCP;
    const int error = command(fd, RDMA_USER_CM_CMD_CREATE_ID, request, sizeof response);
    *id = response.id;
    return error;
  }
  static int bind(int fd, uint32_t id, uint16_t port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    rdma_ucm_bind request = {};
    request.id = id;
    request.addr_size = sizeof address;
    memcpy(&request.addr, &address, sizeof address);
    return command(fd, RDMA_USER_CM_CMD_BIND, request);
  }
  // What binding to a taken port returns; the second is with a wildcard address (cma.c, cma_check_port).
  static bool is_taken(int error) { return error == EADDRINUSE || error == EADDRNOTAVAIL; }

  // The port becomes free within ten seconds.
  static bool becomes_free(uint16_t port) {
    const int fd = open(kDevice, O_RDWR | O_CLOEXEC);
    uint32_t id = 0;
    EXPECT_EQ(create(fd, &id), 0);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    int error = bind(fd, id, port);
    while (is_taken(error) && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      error = bind(fd, id, port);
    }
    close(fd);
    return error == 0;
  }

  int fd_ = -1;
};

TEST_F(Device, IsACharacterDeviceWithTheNumberThatSysfsTells) {
  unsigned major_number = 0, minor_number = 0;
  char colon;
  std::ifstream("/sys/class/misc/rdma_cm/dev") >> major_number >> colon >> minor_number;
  struct stat by_path, by_descriptor, by_empty_path;
  ASSERT_EQ(stat(kDevice, &by_path), 0);
  ASSERT_EQ(fstat(fd_, &by_descriptor), 0);
  ASSERT_EQ(fstatat(fd_, "", &by_empty_path, AT_EMPTY_PATH), 0);
  for (const struct stat& status : {by_path, by_descriptor, by_empty_path}) {
    EXPECT_TRUE(S_ISCHR(status.st_mode));
    EXPECT_EQ(status.st_rdev, makedev(major_number, minor_number));
  }
}

TEST_F(Device, CopyShowsTheSame) {
  const int copy = dup(fd_);
  struct stat status;
  ASSERT_EQ(fstat(copy, &status), 0);
  EXPECT_TRUE(S_ISCHR(status.st_mode));
  close(copy);
}

TEST_F(Device, WhatTakesTheNumberAfterwardsIsItself) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(dup2(ends[0], fd_), fd_);
  struct stat status;
  ASSERT_EQ(fstat(fd_, &status), 0);
  EXPECT_TRUE(S_ISFIFO(status.st_mode));
  for (const int end : ends) close(end);
}

TEST_F(Device, MalformedCommandsGetTheKernelsErrno) {
  EXPECT_EQ(write(fd_, "1234567", 7), -1);
  EXPECT_EQ(errno, EINVAL);
  const void* volatile nowhere = reinterpret_cast<const void*>(8);
  EXPECT_EQ(write(fd_, nowhere, 16), -1);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_EQ(command(fd_, 99, uint32_t{0}), EINVAL);
  EXPECT_EQ(command(fd_, RDMA_USER_CM_CMD_GET_OPTION, uint32_t{0}), ENOSYS);
  EXPECT_EQ(command(fd_, RDMA_USER_CM_CMD_DISCONNECT, uint32_t{4711}), ENOENT);
}

TEST_F(Device, CommandsThroughACopyAreTheFiles) {
  const int copy = fcntl(fd_, F_DUPFD_CLOEXEC, 100);
  uint32_t id = 0;
  ASSERT_EQ(create(copy, &id), 0);
  EXPECT_EQ(bind(fd_, id, 21001), 0);
  close(copy);
}

TEST_F(Device, IdsEndWithTheLastCopyOnly) {
  uint32_t id = 0;
  ASSERT_EQ(create(fd_, &id), 0);
  ASSERT_EQ(bind(fd_, id, 21002), 0);
  const int copy = dup(fd_);
  close(fd_);
  fd_ = -1;
  uint32_t second = 0;
  EXPECT_EQ(create(copy, &second), 0);
  EXPECT_TRUE(is_taken(bind(copy, second, 21002)));
  close(copy);
  EXPECT_TRUE(becomes_free(21002));
}

TEST_F(Device, IdsEndWhenSomethingElseTakesTheNumber) {
  uint32_t id = 0;
  ASSERT_EQ(create(fd_, &id), 0);
  ASSERT_EQ(bind(fd_, id, 21003), 0);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  ASSERT_EQ(dup2(null, fd_), fd_);
  close(null);
  EXPECT_TRUE(becomes_free(21003));
}

TEST_F(Device, ForkedChildsCommandsAreRefused) {
  EXPECT_EQ(in_child([&] { return command(fd_, RDMA_USER_CM_CMD_DISCONNECT, uint32_t{0}); }), EBADF);
}

TEST_F(Device, ForkedChildOpensAgain) {
  EXPECT_EQ(in_child([] {
              const int fd = open(kDevice, O_RDWR | O_CLOEXEC);
              uint32_t id = 0;
              return fd < 0 ? errno : create(fd, &id);
            }),
            0);
}

TEST_F(Device, ForkedChildThatEndsLeavesTheParentsIds) {
  uint32_t id = 0;
  ASSERT_EQ(create(fd_, &id), 0);
  EXPECT_EQ(in_child([&] { return close(fd_); }), 0);
  EXPECT_EQ(bind(fd_, id, 21004), 0);
}

TEST_F(Device, VforkedChildsCommandsAreRefused) {
  const pid_t child = vfork();
  if (child == 0) {
    const rdma_ucm_cmd_hdr header = {.cmd = RDMA_USER_CM_CMD_DISCONNECT, .in = 0, .out = 0};
    _exit(write(fd_, &header, sizeof header) < 0 ? errno : 0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), EBADF);
}

TEST_F(Device, SurvivesIntoAnotherProgramAsSomethingThatAnswersNothing) {
  constexpr int kNumber = 9;  // the largest that every sh(1) takes
  ASSERT_EQ(dup2(fd_, kNumber), kNumber);
  EXPECT_NE(system("echo x 2>/dev/null >&9"), 0);
  close(kNumber);
}

TEST_F(Device, OpenedForReadingOnlyTakesNoCommand) {
  const int fd = open(kDevice, O_RDONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(command(fd, RDMA_USER_CM_CMD_DISCONNECT, uint32_t{0}), EBADF);
  close(fd);
}

TEST_F(Device, KeepsTheFlagsItWasOpenedWith) {
  const int fd = open(kDevice, O_RDWR | O_NONBLOCK);
  EXPECT_NE(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
  EXPECT_EQ(fcntl(fd, F_GETFD), 0);
  close(fd);
}

TEST_F(Device, IsNotReadableWhileNothingHasHappened) {
  pollfd entry = {.fd = fd_, .events = POLLIN | POLLOUT, .revents = 0};
  EXPECT_EQ(poll(&entry, 1, 0), 0);
}

}  // namespace
