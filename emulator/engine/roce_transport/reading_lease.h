// SPDX-License-Identifier: BSD-2-Clause
//
// Which process of the node receives from the sockets that all of them share. One at a time, so that the
// packets of a queue pair stay in order: a process that reads first takes what others have read for it. The
// lease ends by itself, since its holder may be killed or stopped. A reader whose lease has ended unnoticed
// costs order, which the peer's RC requester repairs, and UC messages. So it is long: on a busy machine a
// process may not run for a while between reading packets and passing them on. That a holder has ended is
// noticed sooner.
//
// A process whose program polls reads at once; then the others leave it to that process.
#pragma once

#include <atomic>
#include <cstdint>

namespace verbena {

class ReadingLease {
 public:
  static constexpr int64_t kLength = 50'000'000;     // ns
  static constexpr int64_t kUnasked = 2'000'000;     // before anyone asks whether its holder lives
  static constexpr int64_t kPolledLately = 500'000;  // ns

  // The words lie in the node directory.
  ReadingLease(std::atomic<uint64_t>& holder, std::atomic<uint64_t>& poller, uint32_t slot)
      : holder_(holder), poller_(poller), slot_(slot) {}

  // `is_alive(slot)`: is there a process in that slot?
  template <typename IsAlive>
  bool acquire(int64_t now, const IsAlive& is_alive) {
    uint64_t word = holder_.load(std::memory_order_relaxed);
    if (word != 0 && is_younger(word, now, kLength) &&
        (is_younger(word, now, kUnasked) || is_alive(static_cast<uint32_t>(word >> kTimeBits) - 1)))
      return false;
    mine_ = word_at(now);
    return holder_.compare_exchange_strong(word, mine_, std::memory_order_acquire);
  }
  void release() {
    uint64_t word = mine_;
    holder_.compare_exchange_strong(word, 0, std::memory_order_release);
  }

  void note_poll(int64_t now) { poller_.store(word_at(now), std::memory_order_relaxed); }
  // Has the program of another process polled lately?
  bool others_poll(int64_t now) const {
    const uint64_t word = poller_.load(std::memory_order_relaxed);
    return word >> kTimeBits != slot_ + 1 && is_younger(word, now, kPolledLately);
  }

 private:
  static constexpr unsigned kTimeBits = 48, kTick = 10;  // 1024 ns; the process's slot + 1 above
  static constexpr uint64_t kTimeMask = (uint64_t{1} << kTimeBits) - 1;

  static uint64_t ticks(int64_t now) { return static_cast<uint64_t>(now) >> kTick & kTimeMask; }
  uint64_t word_at(int64_t now) const { return (uint64_t{slot_} + 1) << kTimeBits | ticks(now); }
  // A time that lies in the future is damaged, and old.
  static bool is_younger(uint64_t word, int64_t now, int64_t age) {
    return ((ticks(now) - word) & kTimeMask) < static_cast<uint64_t>(age) >> kTick;
  }

  std::atomic<uint64_t>& holder_;
  std::atomic<uint64_t>& poller_;
  const uint32_t slot_;
  uint64_t mine_ = 0;
};

}  // namespace verbena
