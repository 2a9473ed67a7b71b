// SPDX-License-Identifier: BSD-2-Clause
//
// The receive queue of a QP. The owner posts to it. The one requester that is connected to the QP takes from
// it. A slot is reused when its completion has been polled; only the owner counts that.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "adapter/layout.h"
#include "adapter/prefetch.h"

namespace verbena {

class SegmentView;

// What a requester has read of the words of WQEs [first, first + kWords), which is one cache line of them.
struct KnownReady {
  static constexpr uint64_t kWords = kCacheLine / sizeof(uint64_t);
  static constexpr uint64_t kNone = uint64_t{1} << 63;
  uint64_t first = kNone;  // a multiple of kWords
  uint64_t words[kWords] = {};
};

struct ReceiveRing {
  std::atomic<uint64_t>* ready = nullptr;
  std::byte* wqes = nullptr;
  std::byte* bounce_buffers = nullptr;
  uint32_t order = 0;
  uint32_t stride = 0;
  uint32_t max_sge = 0;

  // The ring of `qp`. `ready` is nullptr when the offsets do not lie within the segment, or when the QP has
  // no receive queue.
  static ReceiveRing of(const SegmentView& segment, const SharedQp& shared);

  uint64_t mask() const { return (uint64_t{1} << order) - 1; }
  static uint8_t lap(uint64_t number, uint32_t order) { return static_cast<uint8_t>((number >> order) + 1); }

  ReceiveWqe& wqe(uint64_t number) const {
    return *reinterpret_cast<ReceiveWqe*>(wqes + (number & mask()) * stride);
  }
  std::byte* bounce(uint64_t number) const { return bounce_buffers + (number & mask()) * kBounceSize; }

  // Owner: publishes WQE `number` (a running number).
  void publish(uint64_t number, uint32_t epoch, uint32_t length) const {
    ready[number & mask()].store(ReadyWord{lap(number, order), epoch, length}.pack(),
                                 std::memory_order_release);
  }

  // Owner, before it posts `number` and the following WQEs: prefetches their words from the requester's
  // cache.
  void prepare_posts(uint64_t number) const {
    prefetch_exclusive(&ready[number & mask()]);
    prefetch_exclusive(&ready[(number + 8) & mask()]);
  }

  // Requester: true if WQE `number` is there.
  bool peek(uint64_t number, ReadyWord* out) const {
    *out = ReadyWord::unpack(ready[number & mask()].load(std::memory_order_acquire));
    return out->lap == lap(number, order);
  }

  // Requester: the same, by what it has read before. A WQE that was posted stays until it is taken, or the
  // queue pair leaves its generation. Meanwhile the owner writes to the same cache line, as it posts again
  // what was taken: reading that line for each message would cost both a cache miss.
  bool peek(uint64_t number, ReadyWord* out, KnownReady* known) const {
    if (number - known->first < KnownReady::kWords) {
      *out = ReadyWord::unpack(known->words[number % KnownReady::kWords]);
      if (out->lap == lap(number, order)) [[likely]]
        return true;
    }
    known->first = number - number % KnownReady::kWords;
    for (uint64_t i = number % KnownReady::kWords; i < KnownReady::kWords; ++i)
      known->words[i] = ready[(known->first + i) & mask()].load(std::memory_order_acquire);
    *out = ReadyWord::unpack(known->words[number % KnownReady::kWords]);
    return out->lap == lap(number, order);
  }

  // Requester, in a stream: prefetches the words of WQEs a little after `number`.
  void expect(uint64_t number) const {
    constexpr uint64_t kAhead = 16;  // two lines
    prefetch(&ready[(number + kAhead) & mask()]);
  }
};

}  // namespace verbena
