// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/service_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "fabric/fork_descriptors.h"
#include "fabric/service_inbox.h"
#include "unit/common/child.h"
#include "unit/common/own_process.h"
#include "unit/common/temporary_folder.h"
#include "unit/common/temporary_node.h"

namespace verbena {
namespace {

constexpr int kAnswerPatienceMs = 10000;

std::span<const uint8_t> octets(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

class ServiceSocketTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(socket_.open(folder_), 0);
    for (const ServiceNumber service : {ServiceNumber::kSegment, ServiceNumber::kRequest})
      socket_.serve_by(service, echo, &calls_);
  }
  // Replies with what it got.
  static void echo(void* calls, ServiceCall& call) {
    static_cast<std::atomic<int>*>(calls)->fetch_add(1);
    static_cast<void>(call.connection.send(call.message));  // the peer may be gone
  }
  std::jthread serving() {
    return std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) serve_for(10);
    });
  }
  void serve_for(int timeout_ms) {
    pollfd readable{socket_.descriptor(), POLLIN, 0};
    if (poll(&readable, 1, timeout_ms) == 1) socket_.serve();
  }
  MessageSocket connect() const {
    MessageSocket peer;
    EXPECT_EQ(peer.connect_to(folder_, ServiceSocket::kName), 0);
    return peer;
  }
  MessageSocket call(ServiceNumber service, const std::string& text) const {
    MessageSocket peer;
    EXPECT_EQ(call_service(folder_, service, octets(text), &peer), 0);
    return peer;
  }
  // As call_service() does, of any content.
  static void send_first(const MessageSocket& peer, uint32_t magic, uint32_t number, size_t size) {
    std::string bytes(size, 'x');
    const uint32_t words[] = {magic, number};
    bytes.replace(0, std::min(size, sizeof words), reinterpret_cast<const char*>(words),
                  std::min(size, sizeof words));
    EXPECT_EQ(peer.send(octets(bytes)), 0);
  }
  // The reply; "": the connection is closed.
  static std::string reply(const MessageSocket& peer) {
    uint8_t bytes[kMaxServiceMessage];
    ssize_t got = -EAGAIN;
    eventually([&] {
      got = peer.receive(bytes);
      if (got == -EAGAIN) peer.wait(kAnswerPatienceMs);
      return got != -EAGAIN;
    });
    EXPECT_NE(got, -EAGAIN);
    return got > 0 ? std::string(bytes, bytes + got) : "";
  }
  static bool is_waiting(const MessageSocket& peer) {
    uint8_t byte;
    return peer.receive({&byte, 1}) == -EAGAIN;
  }

  static constexpr uint32_t kMagic = 0x31565356;
  const TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
  std::atomic<int> calls_{0};
  ServiceSocket socket_;
};

TEST_F(ServiceSocketTest, GivesTheMessageToTheServiceThatItNames) {
  const auto thread = serving();
  EXPECT_EQ(reply(call(ServiceNumber::kSegment, "abc")), "abc");
  EXPECT_EQ(reply(call(ServiceNumber::kRequest, std::string(kMaxServiceMessage, 'x'))),
            std::string(kMaxServiceMessage, 'x'));
  EXPECT_EQ(calls_, 2);
}

TEST_F(ServiceSocketTest, HangsUpOnAnUnknownNumber) {
  const auto thread = serving();
  for (const uint32_t number : {uint32_t{0}, uint32_t{kServices + 1}, ~uint32_t{0}}) {
    const MessageSocket peer = connect();
    send_first(peer, kMagic, number, 12);
    EXPECT_EQ(reply(peer), "") << number;
  }
  EXPECT_EQ(calls_, 0);
}

TEST_F(ServiceSocketTest, HangsUpOnAServiceThatNobodyServes) {
  const auto thread = serving();
  EXPECT_EQ(reply(call(ServiceNumber::kConnectionManager, "abc")), "");
  socket_.serve_by(ServiceNumber::kSegment, nullptr, nullptr);
  EXPECT_EQ(reply(call(ServiceNumber::kSegment, "abc")), "");
}

TEST_F(ServiceSocketTest, HangsUpOnWhatIsNoFirstMessage) {
  const auto thread = serving();
  struct {
    uint32_t magic;
    size_t size;
  } constexpr kRows[] = {
      {kMagic + 1, 12}, {kMagic, 7}, {kMagic, 1}, {kMagic, 8 + kMaxServiceMessage + 1}, {kMagic, 20000}};
  for (const auto& row : kRows) {
    const MessageSocket peer = connect();
    send_first(peer, row.magic, 1, row.size);
    EXPECT_EQ(reply(peer), "") << row.size;
  }
  EXPECT_EQ(calls_, 0);
  EXPECT_EQ(reply(call(ServiceNumber::kSegment, "abc")), "abc");
}

TEST_F(ServiceSocketTest, SendsNoMessageThatIsTooLong) {
  MessageSocket peer;
  const std::string text(kMaxServiceMessage + 1, 'x');
  EXPECT_EQ(call_service(folder_, ServiceNumber::kSegment, octets(text), &peer), EMSGSIZE);
}

TEST_F(ServiceSocketTest, ASilentPeerDelaysNobody) {
  const auto thread = serving();
  const MessageSocket silent = connect();
  EXPECT_EQ(reply(call(ServiceNumber::kSegment, "abc")), "abc");
  EXPECT_TRUE(is_waiting(silent));
  send_first(silent, kMagic, 1, 12);
  EXPECT_EQ(reply(silent), "xxxx");
}

TEST_F(ServiceSocketTest, APeerThatGoesWithoutAWordLeavesNothing) {
  const size_t before = open_descriptors();
  {
    const MessageSocket silent = connect();
    socket_.serve();
    EXPECT_EQ(open_descriptors(), before + 2);
  }
  socket_.serve();
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(ServiceSocketTest, HoldsABoundedNumberOfSilentPeers) {
  std::vector<MessageSocket> silent;
  for (size_t i = 0; i < ServiceSocket::kMaxSilent + 2; ++i) {
    silent.push_back(connect());
    socket_.serve();
  }
  EXPECT_FALSE(is_waiting(silent[0]));
  EXPECT_FALSE(is_waiting(silent[1]));
  EXPECT_TRUE(is_waiting(silent[2]));
  EXPECT_TRUE(is_waiting(silent.back()));
}

// Lets this process open no further descriptor.
class NoDescriptorLeft {
 public:
  NoDescriptorLeft() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const Descriptor next(open("/dev/null", O_RDONLY | O_CLOEXEC));
    rlimit none = before_;
    none.rlim_cur = static_cast<rlim_t>(next.fd);
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  ~NoDescriptorLeft() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST_F(ServiceSocketTest, GivesUpASilentPeerForADescriptor) {
  const MessageSocket silent = connect();
  socket_.serve();
  const MessageSocket peer = call(ServiceNumber::kSegment, "abc");
  {
    const NoDescriptorLeft none;
    EXPECT_TRUE(socket_.serve());
  }
  EXPECT_EQ(reply(peer), "abc");
  EXPECT_FALSE(is_waiting(silent));
}

TEST_F(ServiceSocketTest, SaysThatAPeerHasToWaitForADescriptor) {
  const MessageSocket peer = call(ServiceNumber::kSegment, "abc");
  {
    const NoDescriptorLeft none;
    EXPECT_FALSE(socket_.serve());
  }
  EXPECT_TRUE(is_waiting(peer));
  EXPECT_TRUE(socket_.serve());
  EXPECT_EQ(reply(peer), "abc");
}

TEST_F(ServiceSocketTest, ServesTwoServicesAtOnce) {
  const auto thread = serving();
  const auto ask = [this](ServiceNumber service, const std::string& text) {
    for (int i = 0; i < 200; ++i) EXPECT_EQ(reply(call(service, text)), text);
  };
  std::jthread other(ask, ServiceNumber::kRequest, "of the other");
  ask(ServiceNumber::kSegment, "of the one");
  other.join();
  EXPECT_EQ(calls_, 400);
}

TEST_F(ServiceSocketTest, ASlowServiceDelaysNoOther) {
  ServiceInbox inbox;
  std::atomic<int> woken{0};
  inbox.open(
      socket_, ServiceNumber::kConnectionManager,
      [](void* count) { ++*static_cast<std::atomic<int>*>(count); }, &woken);
  const auto thread = serving();
  std::latch begin(1);
  std::jthread slow([&] {
    begin.wait();
    for (ServiceInbox::Call call; inbox.take(&call);) EXPECT_EQ(call.connection.send(call.message), 0);
  });
  const MessageSocket first = call(ServiceNumber::kConnectionManager, "1");
  const MessageSocket second = call(ServiceNumber::kConnectionManager, "2");
  EXPECT_EQ(reply(call(ServiceNumber::kSegment, "abc")), "abc");
  EXPECT_EQ(woken, 2);
  EXPECT_TRUE(is_waiting(first));
  begin.count_down();
  EXPECT_EQ(reply(first), "1");
  EXPECT_EQ(reply(second), "2");
}

TEST_F(ServiceSocketTest, AnInboxIsBounded) {
  ServiceInbox inbox;
  inbox.open(
      socket_, ServiceNumber::kConnectionManager, [](void*) {}, nullptr);
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlimit all{limit.rlim_max, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &all), 0);
  const size_t before = open_descriptors();  // the ends of the callers are closed
  for (size_t i = 0; i < ServiceInbox::kMaxWaiting + 3; ++i) {
    call(ServiceNumber::kConnectionManager, "x");
    socket_.serve();
  }
  EXPECT_EQ(open_descriptors(), before + ServiceInbox::kMaxWaiting);
  inbox.close();
  EXPECT_EQ(open_descriptors(), before);
  setrlimit(RLIMIT_NOFILE, &limit);
}

TEST_F(ServiceSocketTest, AHandlerMayKeepTheConnection) {
  MessageSocket kept;
  socket_.serve_by(
      ServiceNumber::kConnectionManager,
      [](void* to, ServiceCall& call) { *static_cast<MessageSocket*>(to) = std::move(call.connection); },
      &kept);
  const MessageSocket silent = connect();  // the way through the silent peers is the same
  socket_.serve();
  send_first(silent, kMagic, static_cast<uint32_t>(ServiceNumber::kConnectionManager), 8);
  socket_.serve();
  ASSERT_TRUE(kept.is_open());
  EXPECT_EQ(kept.send(octets("later")), 0);
  EXPECT_EQ(reply(silent), "later");
  EXPECT_EQ(silent.send(octets("more")), 0);
  socket_.serve();  // does not watch it any more
  EXPECT_EQ(reply(kept), "more");
}

TEST_F(ServiceSocketTest, GivesOneDescriptorAndClosesTheOthers) {
  Descriptor taken;
  socket_.serve_by(
      ServiceNumber::kSegment,
      [](void* to, ServiceCall& call) { static_cast<Descriptor*>(to)->reset(call.passed.release()); },
      &taken);
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const Descriptor reader(ends[0]), writer(ends[1]);
  MessageSocket peer;
  ASSERT_EQ(call_service(folder_, ServiceNumber::kSegment, {}, &peer, ends), 0);
  const size_t before = open_descriptors();
  socket_.serve();
  EXPECT_EQ(open_descriptors(), before + 1);
  ASSERT_EQ(write(writer.fd, "x", 1), 1);
  char byte = 0;
  EXPECT_EQ(read(taken.fd, &byte, 1), 1);
  EXPECT_NE(fcntl(taken.fd, F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(ServiceSocketTest, ClosesDescriptorsThatNobodyTakes) {
  const Descriptor null(open("/dev/null", O_RDWR | O_CLOEXEC));
  const size_t before = open_descriptors();
  for (const uint32_t number : {1u, 4u, 99u}) {
    const MessageSocket peer = connect();
    const uint32_t words[] = {kMagic, number};
    EXPECT_EQ(peer.send({reinterpret_cast<const uint8_t*>(words), sizeof words}, {&null.fd, 1}), 0);
  }
  socket_.serve();
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(ServiceSocketTest, AServiceThatEndsHasNoHandlerRunning) {
  struct {
    std::latch begun{1}, may_end{1};
    std::atomic<bool> ended{false};
  } run;
  socket_.serve_by(
      ServiceNumber::kSegment,
      [](void* to, ServiceCall&) {
        auto& shared = *static_cast<decltype(run)*>(to);
        shared.begun.count_down();
        shared.may_end.wait();
        shared.ended = true;
      },
      &run);
  const auto thread = serving();
  const MessageSocket peer = call(ServiceNumber::kSegment, "");
  run.begun.wait();
  std::jthread ends([&] {
    socket_.serve_by(ServiceNumber::kSegment, nullptr, nullptr);
    EXPECT_TRUE(run.ended);
  });
  run.may_end.count_down();
}

TEST_F(ServiceSocketTest, ServesTheOthersOfAKilledPeer) {
  Child child([this](const Child& self) {
    const MessageSocket silent = connect();
    const MessageSocket called = call(ServiceNumber::kSegment, "abc");
    self.tell('c');
    return self.hear();
  });
  ASSERT_EQ(child.answer(), 'c');
  child.kill_now();
  const auto thread = serving();
  EXPECT_EQ(reply(call(ServiceNumber::kSegment, "abc")), "abc");
}

TEST_F(ServiceSocketTest, APeerOfAStoppedProcessIsNotBlocked) {
  MessageSocket peer;
  int error = 0;
  for (int i = 0; error == 0 && i < 2 * kServiceBacklog; ++i)
    error = peer.connect_to(folder_, ServiceSocket::kName);
  EXPECT_EQ(error, EAGAIN);
}

TEST_F(ServiceSocketTest, AProcessThatEndsHangsUp) {
  const MessageSocket waiting = connect(), called = call(ServiceNumber::kSegment, "abc");
  socket_.close();
  EXPECT_EQ(reply(waiting), "");
  EXPECT_EQ(reply(called), "");
  MessageSocket late;
  EXPECT_EQ(call_service(folder_, ServiceNumber::kSegment, {}, &late), ECONNREFUSED);
  EXPECT_EQ(call_service(folder_ + "-not", ServiceNumber::kSegment, {}, &late), ENOENT);
}

TEST_F(ServiceSocketTest, IsNotKeptOpenByAForkedChild) {
  const MessageSocket silent = connect();
  socket_.serve();
  Child child([](const Child& self) {
    close_parent_descriptors();
    self.tell('y');
    return self.hear();
  });
  ASSERT_EQ(child.answer(), 'y');
  socket_.close();
  MessageSocket late;
  EXPECT_EQ(call_service(folder_, ServiceNumber::kSegment, {}, &late), ECONNREFUSED);
}

TEST_F(ServiceSocketTest, LeavesAFileInItsPlaceAlone) {
  const int number = socket_.descriptor();
  const Descriptor null(open("/dev/null", O_RDWR | O_CLOEXEC));
  ASSERT_EQ(dup2(null.fd, number), number);  // the program takes the number for itself
  EXPECT_TRUE(socket_.serve());
  EXPECT_EQ(socket_.descriptor(), -1);
  EXPECT_EQ(write(number, "x", 1), 1);
  close(number);
}

}  // namespace
}  // namespace verbena
