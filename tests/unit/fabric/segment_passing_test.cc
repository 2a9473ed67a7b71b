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
    for (int fd : {segment_, out_.segment_fd, out_.memory_fd})
      if (fd >= 0) close(fd);
  }
  void listen() {
    const auto pass = [](void* self, ServiceCall& call) {
      const auto& test = *static_cast<SegmentPassing*>(self);
      pass_segment(call, test.segment_, test.memory_);
    };
    socket_.serve_by(ServiceNumber::kSegment, pass, this);
    ASSERT_EQ(socket_.open(folder_), 0);
  }
  std::jthread owner() {
    return std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) socket_.serve(), usleep(1000);
    });
  }
  // Takes one connection of `listener_`.
  MessageSocket accept_one() {
    MessageSocket client;
    EXPECT_TRUE(eventually([&] { return client.accept_from(listener_) == 0; }));
    return client;
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
      const MessageSocket client = accept_one();
      EXPECT_EQ(client.send({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}), 0);
    });
  }

  const TemporaryFolder temporary_;
  std::string folder_ = temporary_.path();
  ServiceSocket socket_;
  MessageSocket listener_;  // of an owner that breaks the rules
  int segment_ = -1;
  int memory_ = -1;
  PassedSegment out_;
};

TEST_F(SegmentPassing, GivesBothDescriptors) {
  memory_ = open("/dev/null", O_RDWR | O_CLOEXEC);
  listen();
  auto serving = owner();
  ASSERT_EQ(ask(), 0);
  EXPECT_TRUE(same(out_.segment_fd, segment_));
  EXPECT_TRUE(same(out_.memory_fd, memory_));
  EXPECT_NE(fcntl(out_.segment_fd, F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_EQ(out_.pid, getpid());
  serving.request_stop();
  serving.join();
  close(memory_);
}

TEST_F(SegmentPassing, GivesTheSegmentAloneWhenThereIsNoMemoryDescriptor) {
  listen();
  const auto serving = owner();
  ASSERT_EQ(ask(), 0);
  EXPECT_TRUE(same(out_.segment_fd, segment_));
  EXPECT_EQ(out_.memory_fd, -1);
}

TEST_F(SegmentPassing, WorksInAFolderLongerThanASocketAddress) {
  folder_ += "/" + std::string(200, 'x');
  std::filesystem::create_directory(folder_);
  listen();
  const auto serving = owner();
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
  for (int i = 0; i < kServiceBacklog + 2; ++i) ASSERT_EQ(ask(1), ETIMEDOUT) << i;
}

TEST_F(SegmentPassing, SaysThatNobodyIsThere) { EXPECT_EQ(ask(), ENOENT); }

TEST_F(SegmentPassing, SaysThatTheOwnerDied) {
  listen();
  socket_.close();
  EXPECT_EQ(ask(), ECONNREFUSED);
}

TEST_F(SegmentPassing, RefusesAnAnswerWithoutDescriptors) {
  ASSERT_EQ(listener_.listen_in(folder_, ServiceSocket::kName, 1), 0);
  const auto owner = babbler("\2");
  EXPECT_EQ(ask(), EPROTO);
}

TEST_F(SegmentPassing, RefusesAnEmptyAnswer) {
  ASSERT_EQ(listener_.listen_in(folder_, ServiceSocket::kName, 1), 0);
  const auto owner = babbler("");
  EXPECT_EQ(ask(), ECONNREFUSED);
}

TEST_F(SegmentPassing, RefusesCredentialsInPlaceOfDescriptors) {
  ASSERT_EQ(listener_.listen_in(folder_, ServiceSocket::kName, 1), 0);
  std::jthread owner([&] {
    const MessageSocket client = accept_one();
    char byte = 1;
    iovec data{&byte, 1};
    const ucred self{getpid(), geteuid(), getegid()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof self)] = {};
    msghdr message{nullptr, 0, &data, 1, control, sizeof control, 0};
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    *header = {CMSG_LEN(sizeof self), SOL_SOCKET, SCM_CREDENTIALS};
    std::memcpy(CMSG_DATA(header), &self, sizeof self);
    EXPECT_EQ(sendmsg(client.fd(), &message, MSG_NOSIGNAL), 1);
  });
  EXPECT_EQ(ask(), EPROTO);
}

TEST_F(SegmentPassing, TheOwnerDoesNotWaitForAnybody) {
  listen();
  const auto began = std::chrono::steady_clock::now();
  socket_.serve();
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(1));
}

}  // namespace
}  // namespace verbena
