// SPDX-License-Identifier: BSD-2-Clause
//
// Random traffic over a bad link. VERBENA_ROCE_RUNS=10000 VERBENA_ROCE_SEED=1 makes the long form; ctest runs
// the first seeds.
#include "fake_link.h"

#include <cstdlib>

namespace verbena::packets {
namespace {

uint64_t number_from(const char* name, uint64_t usual) {
  const char* const text = getenv(name);
  return text != nullptr ? strtoull(text, nullptr, 10) : usual;
}

PacketRequest random_request(std::mt19937_64& random, const Connection& connection) {
  PacketRequest request;
  const auto kinds = static_cast<unsigned>(connection.reliable ? 6 : 2);
  request.kind = static_cast<Kind>(random() % kinds);
  if (request.kind == Kind::kCompareSwap) request.kind = Kind::kSend;
  // Lengths at the borders of packets are as likely as others.
  const auto packets = static_cast<uint32_t>(random() % 9);
  request.length = packets * connection.mtu;
  if (random() % 2 == 0) request.length += static_cast<uint32_t>(random() % connection.mtu);
  // The receiver tells messages of UC apart by their bytes.
  if (!connection.reliable) request.length += 16;
  if (request.kind == Kind::kAtomicWrite) request.length = 8;
  if (request.kind == Kind::kFetchAdd) request.length = 8, request.compare_add = random() % 1000 + 1;
  request.remote_address = random() % (1ull << 47);
  request.rkey = static_cast<uint32_t>(random());
  request.solicited = !brings_response(request.kind) && random() % 3 == 0;
  request.fenced = random() % 8 == 0;
  if (!brings_response(request.kind)) request.has_immediate = random() % 3 == 0;
  if (request.kind == Kind::kSend && connection.reliable && !request.has_immediate)
    request.has_invalidate = random() % 5 == 0;
  request.immediate = static_cast<uint32_t>(random());
  return request;
}

void run_once(uint64_t seed, bool reliable) {
  std::mt19937_64 random(seed);
  const auto up_to = [&](double most) { return std::uniform_real_distribution<>(0, most)(random); };
  LinkFaults faults;
  if (random() % 8 != 0)
    faults = {.loss = up_to(0.1),
              .repeat = up_to(0.1),
              .reorder = up_to(0.2),
              .damage = up_to(0.05),
              .rnr = up_to(0.3),
              .slow = up_to(0.5),
              .delay = static_cast<int64_t>(random() % 50'000)};
  // With UC a packet that comes twice or late may begin a message again (vol. 1, 9.8.2).
  if (!reliable) faults.repeat = faults.reorder = 0;
  RequesterOptions options;
  options.connection.reliable = reliable;
  options.connection.mtu = 256u << random() % 5;
  options.depth = 1 + static_cast<uint32_t>(random() % 32);
  options.window = 1 + static_cast<uint32_t>(random() % 64);
  options.max_rd_atomic = 1 + static_cast<uint32_t>(random() % 8);
  // With the longer one, probes come before it.
  options.timeout_ns = random() % 2 == 0 ? 500'000 : 20'000'000;
  options.first_window = 1 + static_cast<uint32_t>(random() % 64);
  options.retry_cnt = 100;  // loss is not what fails a run
  const auto resources = options.max_rd_atomic + static_cast<uint32_t>(random() % 3);
  // Half of the runs pass the end of the PSNs.
  const auto psn = [&] {
    return static_cast<uint32_t>(random() % 2 == 0 ? kPsnMask - random() % 64 : random()) & kPsnMask;
  };
  const uint32_t psn_a = psn(), psn_b = psn();
  FakeLink link(seed, options, psn_a, psn_b, resources, faults);
  for (int batch = 0; batch < 3; ++batch) {
    for (auto& end : link.ends)
      for (uint64_t count = random() % 12; count > 0; --count)
        if (!end->post(random_request(random, options.connection))) break;
    ASSERT_TRUE(link.run()) << "never ends; seed " << seed;
  }
  for (int i = 0; i < 2; ++i) {
    const FakeEnd &end = *link.ends[i], &peer = *link.ends[1 - i];
    ASSERT_EQ(end.failures, 0u) << "seed " << seed;
    ASSERT_EQ(end.wrong_bytes, 0u) << "seed " << seed;
    ASSERT_TRUE(end.requester.is_idle()) << "seed " << seed;
    ASSERT_EQ(end.completions, end.posted.size()) << "seed " << seed;
    const auto messages =
        static_cast<uint64_t>(std::count_if(end.posted.begin(), end.posted.end(), [](const auto& request) {
          return !brings_response(request.kind);
        }));
    if (reliable) {
      ASSERT_EQ(peer.arrived, messages) << "seed " << seed;
      ASSERT_EQ(peer.changes, end.expected_before.size()) << "seed " << seed;
      const auto writes =
          static_cast<uint64_t>(std::count_if(end.posted.begin(), end.posted.end(), [](const auto& request) {
            return request.kind == Kind::kAtomicWrite;
          }));
      ASSERT_EQ(peer.atomic_writes, writes) << "seed " << seed;
    } else {
      ASSERT_LE(peer.arrived, messages) << "seed " << seed;
      if (link.lost == 0 && link.damaged == 0 && faults.reorder == 0 && faults.rnr == 0 &&
          faults.repeat == 0) {
        ASSERT_EQ(peer.arrived, messages) << "seed " << seed;
      }
    }
  }
  ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
}

void run_all(bool reliable) {
  const uint64_t first = number_from("VERBENA_ROCE_SEED", 1), runs = number_from("VERBENA_ROCE_RUNS", 300);
  for (uint64_t seed = first; seed < first + runs; ++seed) {
    run_once(seed, reliable);
    if (testing::Test::HasFatalFailure() || testing::Test::HasFailure()) return;
  }
}

TEST(RoceFakeLink, ReliableMessagesArriveOnceRightAndInOrder) { run_all(true); }

TEST(RoceFakeLink, UnreliableMessagesArriveAtMostOnceRightAndInOrder) { run_all(false); }

}  // namespace
}  // namespace verbena::packets
