// SPDX-License-Identifier: BSD-2-Clause
//
// Many threads on the same objects (ibv_open_device(3): all functions may be called from any thread).
#include <errno.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "unit/engine/scene.h"

namespace verbena {
namespace {

constexpr int kThreads = 4;
using Threads = std::vector<std::jthread>;

template <typename Body>
void together(int count, Body&& body) {
  Threads threads;
  for (int t = 0; t < count; ++t) threads.emplace_back([&body, t] { body(t); });
}

// Calls `post` until it succeeds. ENOMEM: the queue is full for now.
template <typename Post>
bool insist(Post&& post_request) {
  for (const int64_t end = now_ns() + 20'000'000'000; now_ns() < end; sched_yield()) {
    const int error = post_request();
    if (error == 0) return true;
    if (error != ENOMEM) return false;
  }
  return false;
}

TEST(ThreadsOnOneQp, PostEachRequestOnce) {
  constexpr int kEach = 2000;
  Pair pair({.send_wr = 64});
  Region memory(pair.pd.get(), 64);
  std::vector<int> seen(kThreads * kEach);
  std::jthread poller([&] {
    for (const ibv_wc& wc : completions(pair.a.send_cq.get(), seen.size())) ++seen[wc.wr_id];
  });
  together(kThreads, [&](int t) {
    for (int i = 0; i < kEach; ++i)
      EXPECT_TRUE(insist([&] {
        return rdma(*pair.a, IBV_WR_RDMA_WRITE, {memory.sge(0, 8)}, memory.address(8), memory.rkey(),
                    static_cast<uint64_t>(t * kEach + i));
      }));
  });
  poller.join();
  EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), kThreads * kEach);
}

TEST(ThreadsOnOneQp, FetchAndAddLosesNothing) {
  constexpr int kEach = 500;
  Pair pair;
  Region answers(pair.pd.get(), 64), counter(pair.pd.get(), 8);
  std::jthread poller([&] { completions(pair.a.send_cq.get(), kThreads * kEach); });
  together(kThreads, [&](int t) {
    for (int i = 0; i < kEach; ++i) {
      Sges sges{answers.sge(static_cast<uint64_t>(8 * t), 8)};
      ibv_send_wr wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, sges);
      wr.wr.atomic = {counter.address(), 1, 0, counter.rkey()};
      EXPECT_TRUE(insist([&] { return post(*pair.a, wr); }));
    }
  });
  poller.join();
  uint64_t count;
  std::memcpy(&count, counter.data(), 8);
  EXPECT_EQ(count, uint64_t{kThreads * kEach});
}

// Each thread's messages go from its own QP to itself; all completions go to one CQ, which all threads poll.
TEST(ThreadsOnOneCq, GetEachCompletionOnceAndEachQpsInOrder) {
  constexpr uint64_t kEach = 3000;
  Scene scene;
  Owned<Cq> cq = make_cq(scene.context.get(), 4096);
  Region memory(scene.pd.get(), 64 * kThreads);
  std::vector<Owned<Qp>> qps;
  for (int t = 0; t < kThreads; ++t) {
    qps.push_back(make_qp(scene.pd.get(), cq.get(), cq.get(), {}));
    connect(qps.back().get(), qp_number(qps.back().get()), scene.gid());
  }
  std::atomic<uint64_t> seen{0}, sum{0};
  const int64_t end = now_ns() + 30'000'000'000;
  together(2 * kThreads, [&](int t) {
    const auto place = static_cast<uint64_t>(t % kThreads) * 64;
    Qp* qp = qps[static_cast<size_t>(t % kThreads)].get();
    for (uint64_t i = 0; t < kThreads && i < kEach; ++i) {
      EXPECT_TRUE(insist([&] { return receive(qp, {memory.sge(place, 8)}, 2 * i); }));
      EXPECT_TRUE(insist([&] { return send(qp, {memory.sge(place + 8, 8)}, 2 * i + 1); }));
    }
    ibv_wc wc[8];
    while (seen.load() < 2 * kThreads * kEach && now_ns() < end) {
      const int got = poll_cq(cq.get(), 8, wc);
      for (int i = 0; i < got; ++i) sum += wc[i].wr_id + (wc[i].status != IBV_WC_SUCCESS);
      if (got > 0)
        seen += static_cast<uint64_t>(got);
      else
        sched_yield();
    }
  });
  EXPECT_EQ(seen.load(), 2 * kThreads * kEach);
  EXPECT_EQ(sum.load(), kThreads * kEach * (2 * kEach - 1));
}

// Each QP's completions come out in the order of its requests, in whatever order the producers claim entries.
TEST(ThreadsOnOneCq, AreSeenInOrderByOnePoller) {
  constexpr uint64_t kEach = 5000;
  Scene scene;
  Owned<Cq> cq = make_cq(scene.context.get(), 512);
  Region memory(scene.pd.get(), 64);
  std::vector<Owned<Qp>> qps;
  std::vector<std::pair<uint32_t, uint64_t>> expected;  // QP number, next wr_id
  for (int t = 0; t < kThreads; ++t) {
    qps.push_back(make_qp(scene.pd.get(), cq.get(), cq.get()));
    connect(qps.back().get(), qp_number(qps.back().get()), scene.gid());
    expected.emplace_back(qp_number(qps.back().get()), 0);
  }
  std::jthread poller([&] {
    for (const ibv_wc& wc : completions(cq.get(), kThreads * kEach))
      for (auto& [number, next] : expected)
        if (number == wc.qp_num) {
          EXPECT_EQ(wc.wr_id, next++);
        }
  });
  together(kThreads, [&](int t) {
    for (uint64_t i = 0; i < kEach; ++i)
      EXPECT_TRUE(insist([&] {
        return rdma(qps[static_cast<size_t>(t)].get(), IBV_WR_RDMA_WRITE, {memory.sge(0, 8)},
                    memory.address(8), memory.rkey(), i);
      }));
  });
  poller.join();
}

// The same while the poller resizes the CQ (ibv_resize_cq(3)). The smaller size, too, has room for all that
// the send queues hold.
TEST(ThreadsOnOneCq, AreSeenInOrderWhileItIsResized) {
  constexpr uint64_t kEach = 2000;
  Scene scene;
  Owned<Cq> cq = make_cq(scene.context.get(), 512);
  Region memory(scene.pd.get(), 64);
  std::vector<Owned<Qp>> qps;
  std::vector<std::pair<uint32_t, uint64_t>> expected;  // QP number, next wr_id
  for (int t = 0; t < kThreads; ++t) {
    qps.push_back(make_qp(scene.pd.get(), cq.get(), cq.get()));
    connect(qps.back().get(), qp_number(qps.back().get()), scene.gid());
    expected.emplace_back(qp_number(qps.back().get()), 0);
  }
  std::jthread poller([&] {
    for (uint64_t seen = 0; seen < kThreads * kEach && !testing::Test::HasFailure(); ++seen) {
      const ibv_wc wc = completion(cq.get());
      for (auto& [number, next] : expected)
        if (number == wc.qp_num) {
          EXPECT_EQ(wc.wr_id, next++);
        }
      if (seen % 16 == 0) {
        EXPECT_EQ(resize_cq(cq.get(), seen % 32 == 0 ? 260 : 1000), 0);
      }
    }
  });
  together(kThreads, [&](int t) {
    for (uint64_t i = 0; i < kEach; ++i)
      EXPECT_TRUE(insist([&] {
        return rdma(qps[static_cast<size_t>(t)].get(), IBV_WR_RDMA_WRITE, {memory.sge(0, 8)},
                    memory.address(8), memory.rkey(), i);
      }));
  });
  poller.join();
  for (const auto& [number, next] : expected) EXPECT_EQ(next, kEach);
}

TEST(ThreadsOnOneChannel, NeverMissAWakeUp) {
  constexpr int kMessages = 20000, kSenders = 2;
  Scene scene;
  int channel = -1;
  ASSERT_EQ(create_comp_channel(scene.context.get(), &channel), 0);
  Owned<Cq> sends = make_cq(scene.context.get(), 4096),
            receives = make_cq(scene.context.get(), 4096, channel, 7);
  Region memory(scene.pd.get(), 64);
  std::vector<Owned<Qp>> from, to;
  for (int s = 0; s < kSenders; ++s) {
    from.push_back(make_qp(scene.pd.get(), sends.get(), sends.get(), {.all_signaled = true}));
    to.push_back(make_qp(scene.pd.get(), sends.get(), receives.get()));
    connect(from.back().get(), qp_number(to.back().get()), scene.gid());
    connect(to.back().get(), qp_number(from.back().get()), scene.gid());
    for (int i = 0; i < 64; ++i)
      ASSERT_EQ(receive(to.back().get(), {memory.sge(8, 8)}, static_cast<uint64_t>(s)), 0);
  }
  Threads senders;
  for (int s = 0; s < kSenders; ++s)
    senders.emplace_back([&, s] {
      for (int i = 0; i < kMessages / kSenders; ++i)
        if (!insist([&] { return send(from[static_cast<size_t>(s)].get(), {memory.sge(0, 8)}); })) return;
    });
  std::jthread poller([&] { completions(sends.get(), kMessages); });
  int got = 0, wakeups = 0;
  ibv_wc wc;
  const auto drain = [&] {
    for (; poll_cq(receives.get(), 1, &wc) == 1; ++got)
      receive(to[wc.wr_id].get(), {memory.sge(8, 8)}, wc.wr_id);
  };
  // As ibv_get_cq_event(3) shows it: arm, poll once more, sleep.
  for (; got < kMessages; ++wakeups) {
    req_notify_cq(receives.get(), false);
    drain();
    if (got == kMessages) break;
    ASSERT_EQ(completion_event(channel), 7u) << "asleep after " << got << " messages";
    cq_event(receives.get());
    drain();
  }
  EXPECT_EQ(got, kMessages);
  poller.join();
  close(channel);
}

// Regions end while messages for them are not yet polled and the same QP reads elsewhere.
TEST(Threads, NoByteOfAnEagerMessageIsLostWhenItsRegionEnds) {
  Pair pair;
  Region stable(pair.pd.get(), 4096);
  stable.fill(5);
  for (int i = 0; i < 300; ++i) {
    Region to(pair.pd.get(), 64);
    ASSERT_EQ(receive(*pair.b, {to.sge(0, 40)}, 1), 0);
    ASSERT_EQ(send(*pair.a, {stable.sge(0, 40)}), 0);
    std::jthread other(
        [&] { rdma(*pair.a, IBV_WR_RDMA_READ, {stable.sge(128, 8)}, stable.address(256), stable.rkey()); });
    to.deregister();
    ASSERT_EQ(std::memcmp(to.data(), stable.data(), 40), 0) << "round " << i;
    other.join();
    ASSERT_EQ(pair.b.received().status, IBV_WC_SUCCESS);
    completions(pair.a.send_cq.get(), 2);
  }
}

TEST(Threads, DestroyTheirOwnWhileOthersWork) {
  Pair pair;
  Region memory(pair.pd.get(), 64);
  std::atomic<bool> over{false};
  std::jthread traffic([&] {
    while (!over.load()) {
      rdma(*pair.a, IBV_WR_RDMA_WRITE, {memory.sge(0, 8)}, memory.address(8), memory.rkey());
      EXPECT_EQ(pair.a.sent().status, IBV_WC_SUCCESS);
    }
  });
  together(3, [&](int) {
    for (int i = 0; i < 100; ++i) {
      Owned<Cq> cq = make_cq(pair.context.get());
      Region own(pair.pd.get(), 64);
      Owned<Qp> qp = make_qp(pair.pd.get(), cq.get(), cq.get());
      connect(qp.get(), qp_number(qp.get()), pair.gid());
      EXPECT_EQ(receive(qp.get(), {own.sge(0, 8)}), 0);
      EXPECT_EQ(send(qp.get(), {own.sge(8, 8)}), 0);
      own.deregister();
    }
  });
  over = true;
}

TEST(Threads, DestroyAQpThatItsPeerIsSendingTo) {
  for (int i = 0; i < 20; ++i) {
    Pair pair({.timeout = 4, .retry_cnt = 0}, {});
    Region memory(pair.pd.get(), 64);
    std::jthread traffic([&] {
      ibv_wc wc{};
      do {
        if (rdma(*pair.a, IBV_WR_RDMA_WRITE, {memory.sge(0, 8)}, memory.address(8), memory.rkey()) != 0)
          break;
        wc = pair.a.sent();
      } while (wc.status == IBV_WC_SUCCESS);
      EXPECT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
    });
    pair.b.qp.reset();
  }
}

}  // namespace
}  // namespace verbena
