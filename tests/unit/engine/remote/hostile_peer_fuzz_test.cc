// SPDX-License-Identifier: BSD-2-Clause
//
// An authenticated peer that sends anything: noise, frames with one wrong field, replies to requests that
// were never sent, requests of queue pairs that do not exist. Whatever comes, the process goes on, and memory
// registered without remote rights does not change. Runs a second in ctest; VERBENA_FUZZ_SECONDS for longer.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <random>

#include "engine/remote/datagram_receiver.h"
#include "engine/remote/peer.h"
#include "observe/log.h"
#include "unit/engine/played_node.h"
#include "unit/engine/two_nodes.h"

namespace verbena {
namespace {

class HostilePeer {
 public:
  HostilePeer(const End& end, const Region& forbidden, uint32_t seed)
      : end_(end), forbidden_(forbidden), random_(seed) {}

  std::vector<std::byte> frame() {
    wire::FrameHead head;
    std::memset(&head, 0, sizeof head);
    head.start.kind = static_cast<wire::FrameKind>(1 + random_() % 11);
    uint32_t size = 0, payload = 0;
    const uint32_t qpn = qp_number(end_.qp.get());
    switch (head.start.kind) {
      case wire::FrameKind::kRequest:
        payload = static_cast<uint32_t>(random_() % 4 == 0 ? random_() % 40000 : random_() % 300);
        head.request.opcode = static_cast<uint8_t>(random_() % 17);
        head.request.connection = 2 | 3 << 4;
        head.request.target_qpn = qpn;
        head.request.source_qpn = kSource;
        head.request.path_generation = path_generation_;
        head.request.number = number_ + random_() % 3;
        head.request.size = payload;
        head.request.remote_address = end_.memory.address() + random_() % 8192;
        head.request.rkey = end_.memory.rkey();
        if (random_() % 4 == 0) {
          head.request.remote_address = forbidden_.address() + random_() % 4096;
          if (random_() % 2 == 0) head.request.rkey = forbidden_.rkey();
        }
        size = sizeof head.request;
        if (head.request.opcode == IBV_WR_RDMA_READ || (head.request.opcode >= 5 && head.request.opcode < 7))
          payload = 0;
        break;
      case wire::FrameKind::kDatagram:
        payload = 40 + static_cast<uint32_t>(random_() % 500);
        head.datagram.target_qpn = qpn;
        size = sizeof head.datagram;
        break;
      case wire::FrameKind::kQuery:
        head.query.qpn = qpn;
        size = sizeof head.query;
        break;
      case wire::FrameKind::kWhereabouts:
        head.whereabouts.qpn = kSource;
        head.whereabouts.node = random_() % 2;
        head.whereabouts.generation = static_cast<uint32_t>(random_() % 3);
        size = sizeof head.whereabouts;
        break;
      default:
        head.answer.target_qpn = qpn;
        head.answer.source_qpn = kSource;
        head.answer.path_generation = 1;
        head.answer.number = random_() % 8;
        head.answer.value = random_() % 4 == 0 ? random_() : uint64_t{64} << 32;
        payload = head.start.kind == wire::FrameKind::kReadData ? static_cast<uint32_t>(random_() % 65) : 0;
        size = sizeof head.answer;
    }
    head.start.length = size + payload;
    std::vector<std::byte> bytes(size + payload);
    std::memcpy(bytes.data(), &head, size);
    if (random_() % 8 == 0) bytes[random_() % size] = static_cast<std::byte>(random_());
    if (random_() % 16 == 0) path_generation_ += random_() % 2, number_ = random_() % 4;
    return bytes;
  }

  static constexpr uint32_t kSource = 0x123;

 private:
  const End& end_;
  const Region& forbidden_;
  std::mt19937_64 random_;
  uint64_t path_generation_ = 1, number_ = 0;
};

// Connects our queue pair to the hostile one, again.
void begin_again(End& end) {
  ASSERT_EQ(to_state(end.qp.get(), IBV_QPS_RESET), 0);
  end.peer.qpn = HostilePeer::kSource;
  end.connect_qp();
  for (int i = 0; i < 8; ++i) ASSERT_EQ(receive(end.qp.get(), {end.memory.sge(65536, 65536)}), 0);
  ASSERT_EQ(end.read_there(0, 0, 64), 0);
  ASSERT_EQ(end.write_there(0, 0, 64), 0);
}

TEST(HostileNode, IsSurvived) {
  const char* wanted = getenv("VERBENA_FUZZ_SECONDS");
  const int64_t until = now_ns() + (wanted != nullptr ? atoi(wanted) : 1) * int64_t{1'000'000'000};
  int control[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control), 0);
  End end(true, control[0], {}, {});
  close(control[1]);
  Region canary(end.pd.get(), 4096, IBV_ACCESS_LOCAL_WRITE);
  std::fill_n(canary.data(), canary.size(), uint8_t{0x5a});
  end.peer.process = {77, 1, 1};
  for (uint32_t round = 0; now_ns() < until; ++round) {
    int stream[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, stream), 0);
    begin_again(end);
    end.meet(stream[0]);
    HostilePeer peer(end, canary, round);
    for (int i = 0; i < 100; ++i) {
      const std::vector<std::byte> bytes = peer.frame();
      if (::send(stream[1], bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) break;
      char answers[65536];
      while (recv(stream[1], answers, sizeof answers, MSG_DONTWAIT) > 0) {
      }
      ibv_wc wc;
      poll_cq(end.send_cq.get(), 1, &wc);
      poll_cq(end.recv_cq.get(), 1, &wc);
    }
    close(stream[1]);
    ASSERT_TRUE(eventually([&] { return end.is_alone(); }));
  }
  for (size_t i = 0; i < canary.size(); ++i) ASSERT_EQ(canary.data()[i], 0x5a) << i;
}

// A process of the same node that passes anything as its last datagrams (within_node.h).
TEST(HostileProcess, PassesAnythingAsDatagrams) {
  int control[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control), 0);
  End end(true, control[0], {}, {});
  close(control[1]);
  Region canary(end.pd.get(), 4096, IBV_ACCESS_LOCAL_WRITE);
  std::fill_n(canary.data(), canary.size(), uint8_t{0x5a});
  std::mt19937_64 random(1);
  for (uint32_t round = 0; round < 2000; ++round) {
    HostilePeer peer(end, canary, round);
    std::vector<std::byte> all;
    for (int frames = 0; frames < 8; ++frames) {
      const std::vector<std::byte> bytes = peer.frame();
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    all.resize(random() % (all.size() + 1));
    receive_passed_datagrams(*end.context->process, {77, 1, 1}, all);
  }
  for (size_t i = 0; i < canary.size(); ++i) ASSERT_EQ(canary.data()[i], 0x5a) << i;
}

// The peer has the key, and can claim as many names as it likes.
TEST(HostileNode, HasNoMoreConnectionsThanANodeHasProcesses) {
  rlimit files;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  const rlimit enough{std::max<rlim_t>(files.rlim_cur, 4 * kMaxSlots), files.rlim_max};
  if (setrlimit(RLIMIT_NOFILE, &enough) != 0)
    GTEST_SKIP() << "a process has " << files.rlim_max << " descriptors";
  // Restored after the service thread, which reads it, has ended.
  struct Level {
    LogLevel before = std::exchange(log_level, LogLevel::kWarn);
    ~Level() { log_level = before; }
  } level;
  int control[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control), 0);
  End end(true, control[0], {}, {});
  close(control[1]);
  std::vector<int> streams;
  const auto knock = [&](uint32_t name) {
    int stream[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, stream), 0);
    streams.push_back(stream[1]);
    wire::EstablishedConnection arrived;
    arrived.fd = stream[0];
    arrived.peer = {77 + name, 1, 1};
    arrived.peer_address.bytes = End::address_of(false).raw;
    arrived.own_address.bytes = End::address_of(true).raw;
    arrived.target = wire::Target::queue_pair(1);
    end.remote().arrived(arrived);
    return fcntl(arrived.fd, F_GETFD) >= 0;
  };
  for (uint32_t name = 0; name < kMaxSlots; ++name) ASSERT_TRUE(knock(name)) << name;
  testing::internal::CaptureStderr();
  EXPECT_FALSE(knock(kMaxSlots));
  EXPECT_NE(testing::internal::GetCapturedStderr().find("refused process 1 of 198.51.100.2: 1024 processes"),
            std::string::npos);
  EXPECT_TRUE(knock(0)) << "a process that is connected may connect again";
  for (const int stream : streams) close(stream);
  ASSERT_TRUE(eventually([&] { return end.is_alone(); }));
  setrlimit(RLIMIT_NOFILE, &files);
}

// The peer asks for more and more, and reads nothing.
TEST(HostileNode, HasNoMoreReadsKeptThanADeviceHasInFlight) {
  PlayedNode there;
  there.end.connect_qp();
  there.meet();
  const uint32_t qpn = qp_number(there.end.qp.get());
  wire::RequestHead head{};
  head.kind = wire::FrameKind::kRequest;
  head.opcode = IBV_WR_RDMA_READ;
  head.connection = 2 | 3 << 4;
  head.target_qpn = qpn;
  head.source_qpn = PlayedNode::kQpn;
  head.path_generation = 1;
  head.size = 1024 * 1024;
  head.remote_address = there.end.memory.address();
  head.rkey = there.end.memory.rkey();
  const auto ask = [&](uint32_t times) {
    for (uint32_t i = 0; i < times; ++i, ++head.number, head.psn += 1024) {
      there.say(head);
      if (i % 64 != 63) continue;
      ASSERT_TRUE(eventually([&] { return there.is_all_taken(); }));
    }
  };
  ask(kMostReadsOfOne);
  EXPECT_EQ(there.end.qp->state.load(), IBV_QPS_RTS);
  ask(2 * kMostReadsOfOne);
  EXPECT_TRUE(eventually([&] { return there.end.qp->state.load() == IBV_QPS_ERR; }));
}

}  // namespace
}  // namespace verbena
