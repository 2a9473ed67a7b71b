// SPDX-License-Identifier: BSD-2-Clause
//
// When an unanswered request fails, and when a paced one is sent: never before the time that the attributes
// stand for, and not much later. The upper bounds allow for busy machines.
#include <gtest/gtest.h>

#include <thread>

#include "engine/objects/cq.h"
#include "engine/objects/qp.h"
#include "engine/rules/pacing.h"
#include "engine/rules/timers.h"
#include "unit/engine/scene.h"

namespace verbena {
namespace {

constexpr int64_t kGrace = 3'000'000'000;

// Time until the next completion of `side`'s send queue; its status must be `status`.
template <typename Post>
int64_t time_to_fail(Side& side, ibv_wc_status status, Post&& post_request) {
  const int64_t began = now_ns();
  EXPECT_EQ(post_request(), 0);
  EXPECT_EQ(side.sent().status, status);
  return now_ns() - began;
}

void expect_took(int64_t took, uint64_t formula) {
  EXPECT_GE(took, static_cast<int64_t>(formula));
  EXPECT_LT(took, static_cast<int64_t>(formula) + kGrace);
}

// ---- receiver not ready ----

struct Rnr {
  uint8_t retries, timer;
};

class RnrFailure : public ::testing::TestWithParam<Rnr> {};
INSTANTIATE_TEST_SUITE_P(Each, RnrFailure,
                         ::testing::Values(Rnr{0, 1}, Rnr{0, 0}, Rnr{1, 1}, Rnr{1, 14}, Rnr{3, 12},
                                           Rnr{3, 20}, Rnr{6, 18}),
                         [](const auto& rnr) {
                           return std::to_string(rnr.param.retries) + "RetriesTimer" +
                                  std::to_string(rnr.param.timer);
                         });

TEST_P(RnrFailure, ComesAtItsTime) {
  const auto [retries, timer] = GetParam();
  Pair pair({.rnr_retry = retries}, {.min_rnr_timer = timer});
  Region memory(pair.pd.get(), 64);
  expect_took(
      time_to_fail(pair.a, IBV_WC_RNR_RETRY_EXC_ERR, [&] { return send(*pair.a, {memory.sge(0, 8)}); }),
      rnr_failure_ns(retries, timer));
  EXPECT_EQ(qp_state(*pair.a), IBV_QPS_ERR);
}

TEST(RnrFailure, ComesAtItsTimeWhenNobodyPolls) {
  Pair pair({.rnr_retry = 3}, {.min_rnr_timer = 20});
  Region memory(pair.pd.get(), 64);
  const int64_t began = now_ns();
  ASSERT_EQ(send(*pair.a, {memory.sge(0, 8)}), 0);
  ASSERT_TRUE(eventually([&] { return qp_state(*pair.a) == IBV_QPS_ERR; }));
  expect_took(now_ns() - began, rnr_failure_ns(3, 20));
  EXPECT_EQ(pair.a.sent().status, IBV_WC_RNR_RETRY_EXC_ERR);
}

TEST(RnrFailure, ComesForAWriteWithImmediateToo) {
  Pair pair({.rnr_retry = 2}, {.min_rnr_timer = 16});
  Region memory(pair.pd.get(), 64);
  expect_took(time_to_fail(pair.a, IBV_WC_RNR_RETRY_EXC_ERR,
                           [&] {
                             return rdma(*pair.a, IBV_WR_RDMA_WRITE_WITH_IMM, {memory.sge(0, 8)},
                                         memory.address(8), memory.rkey());
                           }),
              rnr_failure_ns(2, 16));
}

// The receive is checked before the key (send_rules.h).
TEST(RnrFailure, ComesBeforeABadKeyOfAWriteWithImmediate) {
  Pair pair({.rnr_retry = 0});
  Region memory(pair.pd.get(), 64);
  ASSERT_EQ(
      rdma(*pair.a, IBV_WR_RDMA_WRITE_WITH_IMM, {memory.sge(0, 8)}, memory.address(8), memory.rkey() + 0x200),
      0);
  EXPECT_EQ(pair.a.sent().status, IBV_WC_RNR_RETRY_EXC_ERR);
}

TEST(RnrFailure, LeavesThePeerAsItWas) {
  Pair pair({.rnr_retry = 0});
  Region memory(pair.pd.get(), 64);
  ASSERT_EQ(send(*pair.a, {memory.sge(0, 8)}), 0);
  EXPECT_EQ(pair.a.sent().status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_EQ(qp_state(*pair.b), IBV_QPS_RTS);
  EXPECT_TRUE(nothing(pair.b.recv_cq.get()));
}

class RnrRescue : public ::testing::TestWithParam<bool> {};  // does the sender poll meanwhile?
INSTANTIATE_TEST_SUITE_P(Polling, RnrRescue, ::testing::Bool());

TEST_P(RnrRescue, AReceivePostedByAnotherThreadEndsAnEndlessWait) {
  Pair pair({.rnr_retry = 7}, {.min_rnr_timer = 0});
  Region memory(pair.pd.get(), 64);
  ASSERT_EQ(send(*pair.a, {memory.sge(0, 8)}, 5), 0);
  std::jthread receiver([&] {
    usleep(50'000);  // longer than the service thread stays awake by itself
    EXPECT_EQ(receive(*pair.b, {memory.sge(8, 8)}), 0);
  });
  if (!GetParam()) receiver.join();
  const int64_t began = now_ns();
  if (!GetParam()) {
    EXPECT_EQ(pair.b.received().status, IBV_WC_SUCCESS);
  }
  EXPECT_EQ(pair.a.sent().wr_id, 5u);
  EXPECT_LT(now_ns() - began, kGrace);
}

TEST(RnrRescue, KeepsTheOrderOfThoseThatWait) {
  Pair pair({.rnr_retry = 7});
  Region from(pair.pd.get(), 64), to(pair.pd.get(), 64);
  from.fill(1);
  for (uint64_t i = 0; i < 8; ++i) ASSERT_EQ(send(*pair.a, {from.sge(i, 1)}, i), 0);
  for (uint64_t i = 0; i < 8; ++i) ASSERT_EQ(receive(*pair.b, {to.sge(i, 1)}, i), 0);
  const auto wcs = completions(pair.a.send_cq.get(), 8);
  completions(pair.b.recv_cq.get(), 8);
  for (uint64_t i = 0; i < wcs.size(); ++i) EXPECT_EQ(wcs[i].wr_id, i);
  EXPECT_EQ(std::memcmp(from.data(), to.data(), 8), 0);
}

// ---- nobody answers ----

struct Silence {
  const char* name;
  void (*make)(Pair& pair);
};

void reset(Pair& pair) { EXPECT_EQ(to_state(*pair.b, IBV_QPS_RESET), 0); }
void init(Pair& pair) {
  reset(pair);
  EXPECT_EQ(to_init(*pair.b), 0);
}
void error(Pair& pair) { EXPECT_EQ(to_state(*pair.b, IBV_QPS_ERR), 0); }
void destroyed(Pair& pair) { pair.b.qp.reset(); }
void again(Pair& pair, uint32_t dest, const QpSetup& setup) {
  reset(pair);
  connect(*pair.b, dest, pair.gid(), setup);
}
void other_psn(Pair& pair) { again(pair, pair.a.number(), {.rq_psn = 1}); }
void other_peer(Pair& pair) { again(pair, pair.b.number(), {}); }

class Silent : public ::testing::TestWithParam<Silence> {};
INSTANTIATE_TEST_SUITE_P(Peer, Silent,
                         ::testing::Values(Silence{"InReset", reset}, Silence{"InInit", init},
                                           Silence{"InError", error}, Silence{"Destroyed", destroyed},
                                           Silence{"ExpectingAnotherPsn", other_psn},
                                           Silence{"ConnectedToAnother", other_peer}),
                         [](const auto& silence) { return std::string(silence.param.name); });

TEST_P(Silent, IsWaitedForExactly) {
  Pair pair({.timeout = 12, .retry_cnt = 2}, {});  // 3 * 16.8 ms
  Region memory(pair.pd.get(), 64);
  GetParam().make(pair);
  expect_took(time_to_fail(pair.a, IBV_WC_RETRY_EXC_ERR,
                           [&] {
                             return rdma(*pair.a, IBV_WR_RDMA_WRITE, {memory.sge(0, 8)}, memory.address(8),
                                         memory.rkey());
                           }),
              transport_failure_ns(12, 2));
  EXPECT_EQ(qp_state(*pair.a), IBV_QPS_ERR);
}

TEST(SilentPeer, WithoutRetriesIsWaitedForOnce) {
  Pair pair({.timeout = 13, .retry_cnt = 0}, {});
  Region memory(pair.pd.get(), 64);
  error(pair);
  expect_took(time_to_fail(pair.a, IBV_WC_RETRY_EXC_ERR, [&] { return send(*pair.a, {memory.sge(0, 8)}); }),
              transport_failure_ns(13, 0));
}

TEST(SilentPeer, ThatNeverWasIsWaitedForAsLong) {
  Pair pair({.timeout = 12, .retry_cnt = 1}, {});
  Region memory(pair.pd.get(), 64);
  const uint32_t nobody = (pair.b.number() + 5) & 0xffffff;
  ASSERT_EQ(to_state(*pair.a, IBV_QPS_RESET), 0);
  connect(*pair.a, nobody, pair.gid(), {.timeout = 12, .retry_cnt = 1});
  expect_took(time_to_fail(pair.a, IBV_WC_RETRY_EXC_ERR, [&] { return send(*pair.a, {memory.sge(0, 8)}); }),
              transport_failure_ns(12, 1));
}

TEST(SilentPeer, WithoutATimeoutIsWaitedForUntilItAnswers) {
  Pair pair({.timeout = 0, .retry_cnt = 0}, {});
  Region memory(pair.pd.get(), 64);
  reset(pair);
  ASSERT_EQ(rdma(*pair.a, IBV_WR_RDMA_WRITE, {memory.sge(0, 8)}, memory.address(8), memory.rkey(), 5), 0);
  usleep(60'000);
  ASSERT_TRUE(nothing(pair.a.send_cq.get()));
  connect(*pair.b, pair.a.number(), pair.gid());
  const ibv_wc wc = pair.a.sent();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.wr_id, 5u);
}

TEST(SilentPeer, FlushesWhatWaitsBehind) {
  Pair pair({.timeout = 8, .retry_cnt = 0}, {});
  Region memory(pair.pd.get(), 64);
  error(pair);
  for (uint64_t i = 0; i < 5; ++i)
    ASSERT_EQ(send(*pair.a, {memory.sge(0, 8)}, i, i == 0 ? IBV_SEND_SIGNALED : 0), 0);
  const auto wcs = completions(pair.a.send_cq.get(), 5);
  for (uint64_t i = 0; i < wcs.size(); ++i) {
    EXPECT_EQ(wcs[i].wr_id, i);
    EXPECT_EQ(wcs[i].status, i == 0 ? IBV_WC_RETRY_EXC_ERR : IBV_WC_WR_FLUSH_ERR);
  }
}

// ---- packet pacing ----

int set_rate(Qp* qp, uint32_t kbps, uint32_t burst = 0, uint16_t packet = 0) {
  const ibv_qp_rate_limit_attr attr{kbps, burst, packet, 0};
  return modify_qp_rate_limit(qp, &attr);
}

struct Stream {
  const char* name;
  ibv_wr_opcode opcode;
  uint32_t size, count, kbps;
  bool polls;
};

class Paced : public ::testing::TestWithParam<Stream> {};
INSTANTIATE_TEST_SUITE_P(Stream, Paced,
                         ::testing::Values(Stream{"OfWrites", IBV_WR_RDMA_WRITE, 65536, 8, 80'000, true},
                                           Stream{"NobodyPolls", IBV_WR_RDMA_WRITE, 65536, 8, 80'000, false},
                                           Stream{"OfOneLongMessage", IBV_WR_RDMA_WRITE, 524288, 1, 80'000,
                                                  true},
                                           Stream{"OfSmallSends", IBV_WR_SEND, 8, 120, 1'000, true}),
                         [](const auto& stream) { return std::string(stream.param.name); });

TEST_P(Paced, KeepsItsRate) {
  const Stream& stream = GetParam();
  QpSetup deep;
  deep.send_wr = deep.recv_wr = 128;
  Pair pair(deep);
  Region memory(pair.pd.get(), 1 << 20);
  Region taken(pair.pd.get(), 4096);
  if (stream.opcode == IBV_WR_SEND) {
    for (uint32_t i = 0; i < stream.count; ++i) ASSERT_EQ(receive(*pair.b, {taken.sge(0, 64)}), 0);
  }
  const uint32_t mtu = 1024;
  const Pacing pacing = pacing_of({.rate_kbps = stream.kbps}, mtu);
  ASSERT_EQ(set_rate(*pair.a, stream.kbps), 0);
  const int64_t began = now_ns();
  for (uint32_t i = 0; i < stream.count; ++i) {
    Sges sges{memory.sge(0, stream.size)};
    ibv_send_wr wr = request(stream.opcode, sges, i);
    wr.wr.rdma = {memory.address(524288), memory.rkey()};
    ASSERT_EQ(post(*pair.a, wr), 0);
  }
  if (!stream.polls) {
    ASSERT_TRUE(eventually(
        [&] { return (*pair.a)->shared->requests_out.load(std::memory_order_relaxed) == stream.count; }));
  }
  for (const ibv_wc& wc : completions(pair.a.send_cq.get(), stream.count))
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  // The last piece is sent when the pieces before it have been paid for; the bucket is full at the beginning.
  const uint64_t bytes = stream.count * bytes_on_wire(stream.size, mtu) - pacing.burst_bytes;
  const uint64_t last = bytes_on_wire(std::min(stream.size, pacing.burst_bytes), mtu);
  expect_took(now_ns() - began, (bytes - last) * 8'000'000 / stream.kbps);
}

TEST(Pacing, LeavesOtherQueuePairsAlone) {
  Pair slow, other;
  Region memory(slow.pd.get(), 65536), others(other.pd.get(), 65536);
  ASSERT_EQ(set_rate(*slow.a, 1), 0);
  for (uint64_t i = 0; i < 2; ++i)
    ASSERT_EQ(rdma(*slow.a, IBV_WR_RDMA_WRITE, {memory.sge(0, 8192)}, memory.address(8192), memory.rkey(), i),
              0);
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(rdma(*other.a, IBV_WR_RDMA_WRITE, {others.sge(0, 8192)}, others.address(8192), others.rkey()),
              0);
    EXPECT_EQ(other.a.sent().status, IBV_WC_SUCCESS);
  }
  EXPECT_TRUE(nothing(slow.a.send_cq.get()));
}

TEST(Pacing, EndsWithARateOf0) {
  Pair pair;
  Region memory(pair.pd.get(), 65536);
  ASSERT_EQ(set_rate(*pair.a, 1), 0);
  ASSERT_EQ(rdma(*pair.a, IBV_WR_RDMA_WRITE, {memory.sge(0, 32768)}, memory.address(32768), memory.rkey()),
            0);
  EXPECT_TRUE(nothing(pair.a.send_cq.get()));
  ASSERT_EQ(set_rate(*pair.a, 0), 0);
  EXPECT_EQ(pair.a.sent().status, IBV_WC_SUCCESS);
}

TEST(Pacing, EndsWithReset) {
  Pair pair;
  Region memory(pair.pd.get(), 65536);
  ASSERT_EQ(set_rate(*pair.a, 1), 0);
  for (Side* side : {&pair.a, &pair.b}) ASSERT_EQ(to_state(**side, IBV_QPS_RESET), 0);
  connect(*pair.a, pair.b.number(), pair.gid());
  connect(*pair.b, pair.a.number(), pair.gid());
  ASSERT_EQ(rdma(*pair.a, IBV_WR_RDMA_WRITE, {memory.sge(0, 32768)}, memory.address(32768), memory.rkey()),
            0);
  EXPECT_EQ(pair.a.sent().status, IBV_WC_SUCCESS);
}

// ibv_modify_qp(3) with IBV_QP_RATE_LIMIT.
TEST(Pacing, IsAnAttributeOnTheWayUpAndInRts) {
  Pair pair;
  Region memory(pair.pd.get(), 65536);
  ibv_qp_attr attr{};
  attr.rate_limit = 1;
  ASSERT_EQ(modify_qp(*pair.a, &attr, IBV_QP_RATE_LIMIT), 0);
  ASSERT_EQ(rdma(*pair.a, IBV_WR_RDMA_WRITE, {memory.sge(0, 32768)}, memory.address(32768), memory.rkey()),
            0);
  EXPECT_TRUE(nothing(pair.a.send_cq.get()));
  ASSERT_EQ(to_state(*pair.b, IBV_QPS_RESET), 0);
  EXPECT_EQ(modify_qp(*pair.b, &attr, IBV_QP_RATE_LIMIT), EINVAL) << "in RESET";
}

TEST(Pacing, RefusesWhatIsNotClaimed) {
  Pair pair;
  ibv_device_attr_ex claims{};
  ASSERT_EQ(query_device(pair.context.get(), &claims), 0);
  const ibv_packet_pacing_caps& caps = claims.packet_pacing_caps;
  EXPECT_NE(caps.supported_qpts & 1u << IBV_QPT_RC, 0u);
  const struct {
    uint32_t kbps, burst;
    uint16_t packet;
    uint32_t mask;
    int expected;
  } rows[] = {{caps.qp_rate_limit_min, 0, 0, 0, 0},
              {caps.qp_rate_limit_max, 1, 1, 0, 0},
              {caps.qp_rate_limit_max + 1, 0, 0, 0, EINVAL},
              {0, 4096, 0, 0, EINVAL},
              {0, 0, 1024, 0, EINVAL},
              {1000, 0, 0, 1, EINVAL}};
  for (const auto& row : rows) {
    const ibv_qp_rate_limit_attr attr{row.kbps, row.burst, row.packet, row.mask};
    EXPECT_EQ(modify_qp_rate_limit(*pair.a, &attr), row.expected) << row.kbps << " " << row.burst;
  }
}

}  // namespace
}  // namespace verbena
