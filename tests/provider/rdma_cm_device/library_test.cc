// SPDX-License-Identifier: BSD-2-Clause
//
// The first steps of the machine's own librdmacm over the device file.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <string>
#include <thread>

namespace {

class Librdmacm : public ::testing::Test {
 protected:
  void SetUp() override {
    channel_ = rdma_create_event_channel();
    ASSERT_NE(channel_, nullptr) << strerror(errno);
    ASSERT_EQ(rdma_create_id(channel_, &id_, nullptr, RDMA_PS_TCP), 0) << strerror(errno);
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  }
  void TearDown() override {
    rdma_destroy_id(id_);
    rdma_destroy_event_channel(channel_);
  }
  int resolve() { return rdma_resolve_addr(id_, nullptr, reinterpret_cast<sockaddr*>(&address_), 2000); }
  rdma_event_channel* channel_ = nullptr;
  rdma_cm_id* id_ = nullptr;
  sockaddr_in address_ = {};
};

TEST_F(Librdmacm, AddressIsResolvedToTheDevice) {
  ASSERT_EQ(resolve(), 0);
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(rdma_get_cm_event(channel_, &event), 0);
  EXPECT_EQ(event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
  rdma_ack_cm_event(event);
  ASSERT_NE(id_->verbs, nullptr);
  EXPECT_EQ(id_->port_num, 1);
}

TEST_F(Librdmacm, NoEventIsAgainWhereNobodyWaits) {
  fcntl(channel_->fd, F_SETFL, O_NONBLOCK);
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(rdma_get_cm_event(channel_, &event), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(Librdmacm, ThreadThatWaitsForAnEventCanBeCancelled) {
  pthread_t waiting;
  const auto wait = [](void* channel) -> void* {
    rdma_cm_event* event = nullptr;
    rdma_get_cm_event(static_cast<rdma_event_channel*>(channel), &event);
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&waiting, nullptr, wait, channel_), 0);
  ASSERT_EQ(pthread_cancel(waiting), 0);
  void* result = nullptr;
  ASSERT_EQ(pthread_join(waiting, &result), 0);
  EXPECT_EQ(result, PTHREAD_CANCELED);
  // The channel still works.
  ASSERT_EQ(resolve(), 0);
  pollfd entry = {.fd = channel_->fd, .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&entry, 1, 10000), 1);
}

// A call that waits holds its file open: if another file takes the number, the call does not read from that
// one.
TEST_F(Librdmacm, ThreadThatWaitsDoesNotReadTheFileThatTakesTheNumber) {
  int ended[2];
  ASSERT_EQ(pipe(ended), 0);
  close(ended[1]);  // a read finds its end at once
  struct Wait {
    rdma_event_channel* channel;
    std::atomic<bool> begins{false};
    int error = 0;
  };
  const auto wait = [](void* argument) -> void* {
    auto& waiting = *static_cast<Wait*>(argument);
    waiting.begins = true;
    rdma_cm_event* event = nullptr;
    if (rdma_get_cm_event(waiting.channel, &event) != 0) waiting.error = errno;
    return nullptr;
  };
  for (int round = 0; round < 3000; ++round) {
    Wait waiting{rdma_create_event_channel()};
    ASSERT_NE(waiting.channel, nullptr);
    pthread_t thread;
    ASSERT_EQ(pthread_create(&thread, nullptr, wait, &waiting), 0);
    while (!waiting.begins) sched_yield();
    for (volatile int i = 0; i < round % 100 * 20;) i = i + 1;
    ASSERT_EQ(dup2(ended[0], waiting.channel->fd), waiting.channel->fd);
    pthread_cancel(thread);
    pthread_join(thread, nullptr);
    // EBADF: the thread came too late, and the number is a pipe's that cannot be written to.
    ASSERT_TRUE(waiting.error == 0 || waiting.error == EBADF)
        << strerror(waiting.error) << ", round " << round;
    rdma_destroy_event_channel(waiting.channel);
  }
  close(ended[0]);
}

TEST_F(Librdmacm, WaitsForAnEventWithoutADescriptorToSpare) {
  ASSERT_EQ(resolve(), 0);
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(rdma_get_cm_event(channel_, &event), 0);
  rdma_ack_cm_event(event);
  std::promise<pid_t> number;
  std::promise<void> go;
  std::thread waiting([&] {
    number.set_value(gettid());
    go.get_future().wait();
    rdma_cm_event* route = nullptr;
    ASSERT_EQ(rdma_get_cm_event(channel_, &route), 0) << strerror(errno);
    EXPECT_EQ(route->event, RDMA_CM_EVENT_ROUTE_RESOLVED);
    rdma_ack_cm_event(route);
  });
  const std::string path = "/proc/self/task/" + std::to_string(number.get_future().get()) + "/syscall";
  const int call = open(path.c_str(), O_RDONLY);
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const int next = dup(channel_->fd);
  close(next);
  const rlimit none = {static_cast<rlim_t>(next), limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  ASSERT_EQ(dup(channel_->fd), -1);
  go.set_value();
  // Nothing tells that a thread waits in read(2) but /proc.
  const std::string reads = std::to_string(SYS_read) + " ";
  bool waits = false;
  for (int i = 0; i < 10000 && !waits; ++i, usleep(1000)) {
    char text[64] = {};
    waits = pread(call, text, sizeof text - 1, 0) > 0 && std::string(text).starts_with(reads);
  }
  EXPECT_TRUE(waits);
  EXPECT_EQ(rdma_resolve_route(id_, 2000), 0);
  waiting.join();
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  close(call);
}

TEST_F(Librdmacm, IdMovesToAnotherChannelWithItsEvent) {
  rdma_event_channel* other = rdma_create_event_channel();
  ASSERT_EQ(resolve(), 0);
  pollfd entry = {.fd = channel_->fd, .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&entry, 1, 10000), 1);
  ASSERT_EQ(rdma_migrate_id(id_, other), 0) << strerror(errno);
  EXPECT_EQ(poll(&entry, 1, 0), 0);
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(rdma_get_cm_event(other, &event), 0);
  EXPECT_EQ(event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
  rdma_ack_cm_event(event);
  rdma_destroy_id(id_);
  rdma_destroy_event_channel(other);
  ASSERT_EQ(rdma_create_id(channel_, &id_, nullptr, RDMA_PS_TCP), 0);
}

// ---- acknowledgements ----

// What stderr says while `call` runs in a thread of its own, which does not end within 1.5 s unless
// `finishes`.
template <typename Call>
std::string said_during(Call call, bool finishes, const std::function<void()>& end_it) {
  testing::internal::CaptureStderr();
  auto done = std::async(std::launch::async, call);
  const auto status = done.wait_for(std::chrono::milliseconds(1500));
  std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(status == std::future_status::ready, finishes);
  end_it();
  EXPECT_EQ(done.get(), 0);
  return said;
}

std::string name_of(const rdma_cm_id* id) {
  char text[32];
  snprintf(text, sizeof text, "id %p: ", static_cast<const void*>(id));
  return text;
}

constexpr char kOneOfOne[] =
    "waits for 1 of 1 events, which rdma_get_cm_event has returned, to be acknowledged by "
    "rdma_ack_cm_event [event_not_acknowledged]\n";

class LibrdmacmWaits : public Librdmacm {
 protected:
  void SetUp() override {
    Librdmacm::SetUp();
    ASSERT_EQ(resolve(), 0);
    ASSERT_EQ(rdma_get_cm_event(channel_, &event_), 0);
  }
  // Another id takes the place of the one that a test has destroyed.
  void make_another() { ASSERT_EQ(rdma_create_id(channel_, &id_, nullptr, RDMA_PS_TCP), 0); }
  rdma_cm_event* event_ = nullptr;
};

TEST_F(LibrdmacmWaits, DestroySaysWhatItWaitsFor) {
  const std::string name = name_of(id_);
  const std::string said =
      said_during([this] { return rdma_destroy_id(id_); }, false, [this] { rdma_ack_cm_event(event_); });
  EXPECT_NE(said.find("error: rdma_destroy_id: " + name + kOneOfOne), std::string::npos) << said;
  make_another();
}

TEST_F(LibrdmacmWaits, DestroyCountsWhatIsAcknowledged) {
  rdma_ack_cm_event(event_);
  ASSERT_EQ(rdma_resolve_route(id_, 2000), 0);
  ASSERT_EQ(rdma_get_cm_event(channel_, &event_), 0);
  const std::string said =
      said_during([this] { return rdma_destroy_id(id_); }, false, [this] { rdma_ack_cm_event(event_); });
  EXPECT_NE(said.find("waits for 1 of 2 events, which"), std::string::npos) << said;
  make_another();
}

TEST_F(LibrdmacmWaits, MigrateSaysWhatItWaitsFor) {
  rdma_event_channel* other = rdma_create_event_channel();
  const std::string said =
      said_during([&] { return rdma_migrate_id(id_, other); }, false, [this] { rdma_ack_cm_event(event_); });
  EXPECT_NE(said.find("rdma_migrate_id: " + name_of(id_) + kOneOfOne), std::string::npos) << said;
  rdma_destroy_id(id_);
  rdma_destroy_event_channel(other);
  make_another();
}

TEST_F(LibrdmacmWaits, LeavingAGroupSaysWhatItWaitsFor) {
  rdma_ack_cm_event(event_);
  rdma_destroy_id(id_);
  ASSERT_EQ(rdma_create_id(channel_, &id_, nullptr, RDMA_PS_UDP), 0);
  ASSERT_EQ(resolve(), 0);
  ASSERT_EQ(rdma_get_cm_event(channel_, &event_), 0);
  rdma_ack_cm_event(event_);
  sockaddr_in group = {};
  group.sin_family = AF_INET;
  group.sin_addr.s_addr = htonl(0xefc06301);  // 239.192.99.1
  auto* const address = reinterpret_cast<sockaddr*>(&group);
  ASSERT_EQ(rdma_join_multicast(id_, address, nullptr), 0) << strerror(errno);
  ASSERT_EQ(rdma_get_cm_event(channel_, &event_), 0);
  ASSERT_EQ(event_->event, RDMA_CM_EVENT_MULTICAST_JOIN);
  const std::string said = said_during([&] { return rdma_leave_multicast(id_, address); }, false,
                                       [this] { rdma_ack_cm_event(event_); });
  EXPECT_NE(said.find("rdma_leave_multicast: " + name_of(id_) + kOneOfOne), std::string::npos) << said;
}

// The thread that has destroyed an id without a wait may sleep anywhere; that is no wait for
// acknowledgements.
TEST_F(LibrdmacmWaits, NothingIsSaidWithoutAWait) {
  std::promise<void> end;
  const std::string said = said_during(
      [&, over = end.get_future().share()] {
        rdma_cm_event* const late = event_;
        std::thread acknowledging([late] { rdma_ack_cm_event(late); });
        const int result = rdma_destroy_id(id_);
        acknowledging.join();
        over.wait();
        return result;
      },
      false, [&] { end.set_value(); });
  EXPECT_EQ(said, "");
  make_another();
}

}  // namespace
