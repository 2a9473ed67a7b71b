// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/segment_passing.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>

#include "unit/common/temporary_folder.h"
#include "unit/common/temporary_node.h"

namespace verbena {
namespace {

class SegmentPassing : public ::testing::Test {
 protected:
  void SetUp() override { segment_ = memfd_create("segment", MFD_CLOEXEC); }
  void TearDown() override {
    for (int fd : {listener_, segment_, out_.segment_fd, out_.memory_fd})
      if (fd >= 0) close(fd);
  }
  void listen() {
    listener_ = listen_for_peers(folder_);
    ASSERT_GE(listener_, 0);
  }
  int ask(int timeout_ms = 10000) { return ask_for_segment(folder_, timeout_ms, &out_); }
  static bool same(int a, int b) {
    struct stat first, second;
    return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_ino == second.st_ino &&
           first.st_dev == second.st_dev;
  }
  // Takes one connection and answers it with `bytes`, no descriptor among them.
  std::jthread babbler(std::string bytes) {
    return std::jthread([this, bytes] {
      int client = -1;
      eventually([&] { return (client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0; });
      [[maybe_unused]] const ssize_t sent = send(client, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      close(client);
    });
  }

  const TemporaryFolder temporary_;
  std::string folder_ = temporary_.path();
  int listener_ = -1;
  int segment_ = -1;
  PassedSegment out_;
};

TEST_F(SegmentPassing, GivesBothDescriptors) {
  listen();
  const int memory = open("/dev/null", O_RDWR | O_CLOEXEC);
  std::jthread owner([&](std::stop_token stop) {
    while (!stop.stop_requested()) serve_peers(listener_, segment_, memory), usleep(1000);
  });
  ASSERT_EQ(ask(), 0);
  EXPECT_TRUE(same(out_.segment_fd, segment_));
  EXPECT_TRUE(same(out_.memory_fd, memory));
  EXPECT_NE(fcntl(out_.segment_fd, F_GETFD) & FD_CLOEXEC, 0);
  owner.request_stop();
  owner.join();
  close(memory);
}

TEST_F(SegmentPassing, GivesTheSegmentAloneWhenThereIsNoMemoryDescriptor) {
  listen();
  std::jthread owner([&](std::stop_token stop) {
    while (!stop.stop_requested()) serve_peers(listener_, segment_, -1), usleep(1000);
  });
  ASSERT_EQ(ask(), 0);
  EXPECT_TRUE(same(out_.segment_fd, segment_));
  EXPECT_EQ(out_.memory_fd, -1);
}

TEST_F(SegmentPassing, WorksInAFolderLongerThanASocketAddress) {
  folder_ += "/" + std::string(200, 'x');
  std::filesystem::create_directory(folder_);
  listen();
  std::jthread owner([&](std::stop_token stop) {
    while (!stop.stop_requested()) serve_peers(listener_, segment_, -1), usleep(1000);
  });
  EXPECT_EQ(ask(), 0);
}

TEST_F(SegmentPassing, TimesOutOnAnOwnerThatDoesNotAnswer) {
  listen();
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(ask(50), ETIMEDOUT);
  EXPECT_GE(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(50));
}

TEST_F(SegmentPassing, TimesOutOnAnOwnerThatTooManyWaitFor) {
  listen();
  for (int i = 0; i < 258; ++i) ASSERT_EQ(ask(1), ETIMEDOUT) << i;
}

TEST_F(SegmentPassing, SaysThatNobodyIsThere) { EXPECT_EQ(ask(), ENOENT); }

TEST_F(SegmentPassing, SaysThatTheOwnerDied) {
  listen();
  close(std::exchange(listener_, -1));
  EXPECT_EQ(ask(), ECONNREFUSED);
}

TEST_F(SegmentPassing, RefusesAnAnswerWithoutDescriptors) {
  listen();
  const auto owner = babbler("\2");
  EXPECT_EQ(ask(), EPROTO);
}

TEST_F(SegmentPassing, RefusesAnEmptyAnswer) {
  listen();
  const auto owner = babbler("");
  EXPECT_EQ(ask(), ECONNREFUSED);
}

TEST_F(SegmentPassing, RefusesCredentialsInPlaceOfDescriptors) {
  listen();
  std::jthread owner([&] {
    int client = -1;
    eventually([&] { return (client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0; });
    char byte = 1;
    iovec data{&byte, 1};
    const ucred self{getpid(), geteuid(), getegid()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof self)] = {};
    msghdr message{nullptr, 0, &data, 1, control, sizeof control, 0};
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    *header = {CMSG_LEN(sizeof self), SOL_SOCKET, SCM_CREDENTIALS};
    std::memcpy(CMSG_DATA(header), &self, sizeof self);
    sendmsg(client, &message, MSG_NOSIGNAL);
    close(client);
  });
  EXPECT_EQ(ask(), EPROTO);
}

TEST_F(SegmentPassing, TheOwnerDoesNotWaitForAnybody) {
  listen();
  const auto began = std::chrono::steady_clock::now();
  serve_peers(listener_, segment_, -1);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(1));
}

}  // namespace
}  // namespace verbena
