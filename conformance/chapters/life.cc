// SPDX-License-Identifier: BSD-2-Clause
//
// Lifetimes while requests are under way, limits that are claimed, and threads.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <string>

#include "support/pair.h"
#include "support/threads.h"

namespace conformance::life_chapter {
namespace {

class Fixture : public PairTest {
 protected:
  SendRequest write(uint64_t id, int64_t at = 1024) {
    return remote_request(IBV_WR_RDMA_WRITE, {{0, 8}}, far().facts(), at, id);
  }
  static PairSpec deep(uint32_t depth) {
    PairSpec spec;
    spec.both.send_depth = spec.both.receive_depth = depth;
    spec.both.cq_entries = static_cast<int32_t>(2 * depth);
    return spec;
  }
  // Ends as large as claimed, which may be out of reach (ibv_query_device(3), NOTES).
  void pair_at_the_limits(const PairSpec& spec) {
    try {
      pair(spec);
    } catch (const Deviation& deviation) {
      throw NotTested{"out of reach: " + deviation.text};
    }
  }
  // Each of the ids from 0 to count - 1 once. Of tens of thousands that are wrong the first one is shown.
  static void expect_each_once(const std::vector<Completion>& list, uint64_t count) {
    std::map<uint64_t, int> seen;
    for (const Completion& done : list) ++seen[done.id];
    const auto failed = std::find_if(list.begin(), list.end(),
                                     [](const Completion& done) { return done.status != IBV_WC_SUCCESS; });
    if (failed != list.end()) {
      ADD_FAILURE() << "completion " << failed - list.begin() << " of " << list.size() << ": "
                    << completion_text(*failed);
    }
    for (uint64_t id = 0; id < count; ++id)
      if (seen[id] != 1) {
        ADD_FAILURE() << "wr_id " << id << "; expected: 1 completion; seen: " << seen[id];
        break;
      }
    EXPECT_EQ(seen.size(), count);
  }
  // Posts; retries while the queue is full.
  static void post_patiently(const std::function<int()>& post) {
    const auto deadline = std::chrono::steady_clock::now() + scaled(std::chrono::seconds(8));
    for (int error; (error = post()) != 0; give_way())
      // -ENOMEM is a deviation that ibv_post_send.queue-full tells.
      if (std::abs(error) != ENOMEM || std::chrono::steady_clock::now() > deadline)
        throw Deviation{"posting; expected: 0; seen: " + errno_text(error), Where::current()};
  }
};

CONFORMANCE_TEST(life, DestroyedWhileRequestsWait, "life.destroy-qp.in-flight", "life.destroy-qp.receives") {
  PairSpec spec;
  spec.path.rnr_retry = 7;
  spec.path.min_rnr_timer = 12;
  pair(spec);
  for (uint64_t id = 0; id < 4; ++id) {
    ABOUT("life.destroy-qp.in-flight") ASSERT_EQ(near().post(send_request({{0, 8}}, id)), 0);
    ABOUT("life.destroy-qp.receives") ASSERT_EQ(near().receive(0, 64, id), 0);
  }
  ABOUT("life.destroy-qp.in-flight") EXPECT_TRUE(near().stays_empty());
  ASSERT_EQ(near().destroy_qp(), 0);  // with both: a refusal breaks both promises
  const About about("life.destroy-qp.in-flight");
  for (const Completion& left : near().poll(8, {})) EXPECT_EQ(left.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_TRUE(near().stays_empty());
  ASSERT_EQ(far().receive(0, 64), 0);
  EXPECT_TRUE(far().stays_empty(true));
}

CONFORMANCE_TEST(life, OtherEndOfADestroyedQp, "life.destroy-qp.far") {
  PairSpec spec;
  spec.path.timeout = 12;
  spec.path.retry_count = 1;
  pair(spec);
  ASSERT_EQ(far().destroy_qp(), 0);
  ASSERT_EQ(near().post(send_request({{0, 8}})), 0);
  EXPECT_EQ(near().completion().status, IBV_WC_RETRY_EXC_ERR);
}

CONFORMANCE_TEST(life, RegionOfAReceiveIsGone, "life.dereg-mr.receives") {
  PairSpec spec;
  spec.tests_far = true;
  pair(spec);
  near().fill(0, 128, 0x11);
  const wire::Region region = far().register_region(1024, 256, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_EQ(far().receive({{1, {{1024, 256, region.lkey}}}}), 0);
  ASSERT_EQ(far().deregister_region(region), 0);
  ASSERT_EQ(near().post(send_request({{0, 128}})), 0);
  EXPECT_NE(near().completion().status, IBV_WC_SUCCESS);
  EXPECT_NE(far().received().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(far().untouched(0, 4096));
}

CONFORMANCE_TEST(life, RegionGoesBetweenWrites, "life.dereg-mr.target") {
  PairSpec spec;
  spec.tests_far = true;
  pair(spec);
  const wire::Region region =
      far().register_region(1024, 256, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  near().fill(0, 8, 0x11);
  SendRequest request = write(1);
  request.rkey = region.rkey;
  ASSERT_EQ(near().post(request), 0);
  EXPECT_EQ(near().completion().status, IBV_WC_SUCCESS);
  ASSERT_EQ(far().deregister_region(region), 0);
  EXPECT_TRUE(far().has(1024, 8, 0x11));
  near().fill(0, 8, 0x22);
  ASSERT_EQ(near().post(request), 0);
  EXPECT_EQ(near().completion().status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_TRUE(far().has(1024, 8, 0x11));
}

CONFORMANCE_TEST_AS(Traits().alone().limit(30), life, DeepestQueue, "life.limits.depth") {
  const auto depth =
      static_cast<uint32_t>(std::min(device().attributes().max_qp_wr, device().attributes().max_cqe));
  PairSpec spec = deep(depth);
  spec.both.receive_depth = 1;
  spec.both.cq_entries = static_cast<int32_t>(depth);
  spec.far = wire::MakeEnd{};
  spec.path.rnr_retry = 7;  // the first waits, so that all of them are outstanding
  spec.path.min_rnr_timer = 1;
  pair_at_the_limits(spec);
  std::vector<SendRequest> list{send_request({{0, 8}}, 0)};
  for (uint32_t i = 1; i < depth; ++i) list.push_back(write(i));
  ASSERT_EQ(near().post(list), 0) << depth << " requests";
  ASSERT_EQ(far().receive(4096, 64), 0);
  expect_each_once(near().completions(depth, false, Where::current(), std::chrono::seconds(15)), depth);
}

CONFORMANCE_TEST(life, AllElements, "life.limits.sge") {
  const auto most = static_cast<uint32_t>(device().attributes().max_sge);
  PairSpec spec;
  spec.both.send_sges = spec.both.receive_sges = most;
  pair_at_the_limits(spec);
  const uint32_t count = std::min(most, far().facts().receive_sges);
  near().fill_pattern(0, 16384, 5);
  std::vector<Element> from, to;
  for (uint32_t i = 0; i < count; ++i) {
    from.push_back({(i * 7) % 4096, 1 + i % 3});
    to.push_back({8192 + i * 16, 1 + i % 3});
  }
  ASSERT_EQ(far().receive({{1, to}}), 0);
  ASSERT_EQ(near().post(send_request(from)), 0);
  EXPECT_EQ(near().completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(far().received().status, IBV_WC_SUCCESS);
  for (uint32_t i = 0; i < count; ++i)
    EXPECT_TRUE(far().has_pattern(static_cast<uint64_t>(to[i].offset), to[i].length, 5,
                                  static_cast<uint64_t>(from[i].offset)))
        << "element " << i << " of " << count;
}

CONFORMANCE_TEST(life, OutstandingReads, "life.limits.reads") {
  const ibv_device_attr& claims = device().attributes();
  const auto reads = static_cast<uint8_t>(std::min({claims.max_qp_rd_atom, claims.max_qp_init_rd_atom, 255}));
  if (reads == 0) throw NotClaimed{"max_qp_rd_atom or max_qp_init_rd_atom is 0"};
  PairSpec spec = deep(32);
  spec.path.reads = reads;
  spec.both.buffer = 1 << 19;
  pair_at_the_limits(spec);
  if (far().facts().reads_as_responder < reads) throw NotTested{"the far end claims fewer"};
  far().fill_pattern(0, 1 << 18, 5);
  std::vector<SendRequest> list;
  const uint32_t count = std::min(32u, near().facts().send_depth);
  for (uint32_t i = 0; i < count; ++i)
    list.push_back(remote_request(IBV_WR_RDMA_READ, {{i * 8192, 8192}}, far().facts(), i * 8192, i));
  ASSERT_EQ(near().post(list), 0);
  expect_each_once(near().completions(count), count);
  EXPECT_TRUE(near().has_pattern(0, count * 8192, 5));
}

CONFORMANCE_TEST_AS(Traits().limit(30), life, MadeAgainAndAgain, "life.again") {
  for (int round = 0; round < 100; ++round) {
    new_pair();
    ASSERT_EQ(far().receive(0, 64), 0);
    ASSERT_EQ(near().post(send_request({{0, 8}})), 0);
    ASSERT_EQ(near().completion().status, IBV_WC_SUCCESS) << "round " << round;
    ASSERT_EQ(far().received().status, IBV_WC_SUCCESS) << "round " << round;
  }
}

// Ends besides those of the pair, connected with each other.
struct Beside {
  Endpoint near, far;
  Beside(Topology& topology, const Pair& pair, bool shares_cqs = false)
      : near(topology.near(), sharing(pair.near, shares_cqs)), far(topology.far(), sharing(pair.far, false)) {
    if (near.connect(far.facts()) != 0 || far.connect(near.facts()) != 0)
      throw Deviation{"ends are needed", Where::current()};
  }
  static wire::MakeEnd sharing(const Endpoint& lender, bool shares_cqs) {
    wire::MakeEnd spec;
    spec.shares = lender.facts().end;
    spec.shares_cqs = shares_cqs;
    return spec;
  }
};

CONFORMANCE_TEST(life, ManyQpsOneCq, "life.many-qps") {
  const int count = std::min(16, device().attributes().max_qp / 4);
  pair(deep(32));
  std::vector<Beside> all;
  for (int i = 0; i < count; ++i) all.emplace_back(topology(), pair(), true);
  std::map<uint32_t, uint64_t> expected;
  for (uint64_t i = 0; i < all.size(); ++i) {
    expected[all[i].near.facts().qpn] = i;
    ASSERT_EQ(all[i].near.post(remote_request(IBV_WR_RDMA_WRITE, {{0, 8}}, all[i].far.facts(), 1024, i)), 0);
  }
  for (const Completion& done : near().completions(static_cast<uint32_t>(all.size()))) {
    EXPECT_EQ(done.status, IBV_WC_SUCCESS);
    ASSERT_EQ(expected.count(done.qpn), 1u);
    EXPECT_EQ(done.id, expected[done.qpn]);
    expected.erase(done.qpn);
  }
}

constexpr uint32_t thread_count = 4, each = 50;

CONFORMANCE_TEST_AS(Traits().limit(30), life, ThreadsOneQp, "threads.one-qp") {
  PairSpec spec = deep(64);
  spec.both.cq_entries = static_cast<int32_t>(thread_count * each);  // the queue may be larger than asked for
  pair(spec);
  std::vector<Completion> all;
  std::vector<std::function<void()>> bodies;
  for (uint32_t thread = 0; thread < thread_count; ++thread)
    bodies.push_back([&, thread] {
      for (uint32_t i = 0; i < each; ++i)
        post_patiently([&] { return near().post(write(thread * each + i)); });
    });
  bodies.push_back([&] { all = near().completions(thread_count * each); });
  run_in_threads(bodies);
  expect_each_once(all, thread_count * each);
  EXPECT_TRUE(near().stays_empty());
}

CONFORMANCE_TEST_AS(Traits().limit(30), life, ThreadsOneCq, "threads.one-cq") {
  pair(deep(64));
  const uint32_t count = std::min(64u, near().facts().send_depth);
  std::vector<Completion> seen[thread_count];
  std::atomic<uint32_t> total = 0;
  std::vector<std::function<void()>> bodies;
  const auto deadline = std::chrono::steady_clock::now() + scaled(std::chrono::seconds(8));
  for (auto& own : seen)
    bodies.push_back([&] {
      while (total < count && std::chrono::steady_clock::now() < deadline)
        for (const Completion& done : near().poll(3, {})) {
          own.push_back(done);
          ++total;
        }
    });
  bodies.push_back([&] {
    for (uint32_t i = 0; i < count; ++i) post_patiently([&] { return near().post(write(i)); });
  });
  run_in_threads(bodies);
  std::vector<Completion> all;
  for (const auto& own : seen) all.insert(all.end(), own.begin(), own.end());
  expect_each_once(all, count);
}

CONFORMANCE_TEST_AS(Traits().limit(30), life, ThreadsOwnQps, "threads.own-qps") {
  const auto count = std::min(thread_count, static_cast<uint32_t>(device().attributes().max_qp) / 4);
  pair();
  std::vector<Beside> all;
  for (uint32_t i = 0; i < count; ++i) all.emplace_back(topology(), pair());
  run_in_threads(count, [&](size_t i) {
    Beside& own = all[i];
    const auto at = static_cast<int64_t>(1024 * (i + 1));
    for (uint32_t round = 1; round <= each; ++round) {
      own.near.fill_pattern(static_cast<uint64_t>(at), 512, round);
      if (own.near.post(remote_request(IBV_WR_RDMA_WRITE, {{at, 512}}, own.far.facts(), at, round)) != 0)
        throw Deviation{"ibv_post_send; expected: 0", Where::current()};
      const Completion done = own.near.completion();
      EXPECT_EQ(done.status, IBV_WC_SUCCESS);
      EXPECT_EQ(done.id, round);
      EXPECT_TRUE(own.far.has_pattern(static_cast<uint64_t>(at), 512, round));
    }
  });
}

CONFORMANCE_TEST_AS(Traits().limit(30), life, ThreadsReceives, "threads.post-receive") {
  pair(deep(64));
  const uint32_t count = std::min({64u, near().facts().receive_depth, far().facts().send_depth}) / 4 * 4;
  run_in_threads(thread_count, [&](size_t thread) {
    for (uint32_t i = 0; i < count / thread_count; ++i)
      if (near().receive(0, 64, thread * (count / thread_count) + i) != 0)
        throw Deviation{"ibv_post_recv; expected: 0", Where::current()};
  });
  std::vector<SendRequest> list(count, send_request({{0, 8}}));
  ASSERT_EQ(far().post(list), 0);
  expect_each_once(near().completions(count, true), count);
}

CONFORMANCE_TEST_AS(Traits().limit(30), life, ThreadsMakeAndDestroy, "threads.make-and-destroy") {
  const int creators = std::clamp(device().attributes().max_pd - 2, 1, 3);
  pair();
  run_in_threads(static_cast<size_t>(creators + 1), [&](size_t thread) {
    for (uint32_t round = 0; round < 20; ++round) {
      if (thread > 0) {
        Endpoint end(topology().near(), {});
        EXPECT_EQ(end.connect(end.facts()), 0);
        continue;
      }
      if (near().post(write(round)) != 0) throw Deviation{"ibv_post_send; expected: 0", Where::current()};
      EXPECT_EQ(near().completion().status, IBV_WC_SUCCESS);
    }
  });
}

}  // namespace
}  // namespace conformance::life_chapter
