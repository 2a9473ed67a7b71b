// SPDX-License-Identifier: BSD-2-Clause
//
// Many producers on one ring at once.
#include <gtest/gtest.h>
#include <sched.h>

#include <chrono>
#include <thread>

#include "unit/adapter/ring_of_own.h"

namespace verbena {
namespace {

constexpr uint32_t kProducers = 4;
constexpr uint32_t kEach = 20000;
// With a ring of two entries every other message waits until another thread is scheduled.
constexpr uint32_t kEachOfTwo = 5000;

bool in_time(std::chrono::steady_clock::time_point began) {
  return std::chrono::steady_clock::now() - began < std::chrono::seconds(50);
}

// Producer p is QP p and counts 0, 1, 2 … Returns what came out for each QP.
std::vector<std::vector<int64_t>> run(RingOfOwn& ring, CqeKind (*kind)(uint32_t), uint32_t each = kEach) {
  const auto began = std::chrono::steady_clock::now();
  std::vector<std::jthread> producers;
  for (uint32_t p = 0; p < kProducers; ++p)
    producers.emplace_back([&ring, p, kind, began, each] {
      for (uint32_t i = 0; i < each && in_time(began);)
        if (ring.append(p + 1, p, i, kind(i)))
          ++i;
        else
          sched_yield();
    });
  std::vector<std::vector<int64_t>> seen(kProducers);
  for (uint32_t count = 0; count < kProducers * each && in_time(began);) {
    bool eager;
    const Cqe* entry = ring.consumer.take(&eager, true);
    if (entry == nullptr) {
      sched_yield();
      continue;
    }
    seen[entry->qp_index].push_back(entry->index);
    ring.consumer.consume();
    ring.consumer.finish();
    ++count;
  }
  return seen;
}

void expect_each_once_and_in_order(const std::vector<std::vector<int64_t>>& seen, uint32_t each = kEach) {
  for (uint32_t p = 0; p < kProducers; ++p) {
    ASSERT_EQ(seen[p].size(), each) << "producer " << p;
    for (uint32_t i = 0; i < each; ++i) ASSERT_EQ(seen[p][i], i) << "producer " << p;
  }
}

TEST(CompletionRingThreads, LosesNothingAndDoublesNothing) {
  RingOfOwn ring(6);
  expect_each_once_and_in_order(run(ring, [](uint32_t) { return CqeKind::kPublished; }));
}

TEST(CompletionRingThreads, LosesNothingWhenTheRingIsMostlyFull) {
  RingOfOwn ring(1);
  expect_each_once_and_in_order(run(
                                    ring, [](uint32_t) { return CqeKind::kPublished; }, kEachOfTwo),
                                kEachOfTwo);
}

TEST(CompletionRingThreads, KeepsTheOrderOfEachQpWhereSomeAreEager) {
  RingOfOwn ring(4);
  expect_each_once_and_in_order(
      run(ring, [](uint32_t i) { return i % 3 == 0 ? CqeKind::kEager : CqeKind::kPublished; }));
}

}  // namespace
}  // namespace verbena
