// SPDX-License-Identifier: BSD-2-Clause
//
// A receive queue with many requesters (SharedSrq): an SRQ, or the receive queue of a UD QP. The owner posts
// WQEs into free slots and appends each slot's number to the order ring. Requesters of any process take them
// in that order.
//
// Invariants, each true after any instruction of any process:
// - A WQE is taken by one compare-and-swap on its order word, which then names its taker.
// - A slot belongs to the owner again when a completion that names it has been polled, or when its taker has
//   died without one or has abandoned it. The owner finds such slots; no other process gives a slot back.
// - Every WQE before SharedSrq::head is taken. The head never goes back: a taker moves it by compare-and-swap
//   from the value that it has read, so a taker that was stopped in between does not change it.
// - There are as many order words as slots, so that appending never waits.
// - A queue that was made larger has an order ring for each doubling (SrqGrowth). The owner posts to the last
//   one only; a taker that finds a ring empty goes on with the next one.
#pragma once

#include <cstdint>

#include "adapter/prefetch.h"
#include "adapter/segment.h"

namespace verbena {

// posted -> taken by `worker`, in each lap of the order ring.
struct OrderWord {
  uint32_t lap;  // 15 bits of (position >> order) + 1
  bool taken;
  uint32_t slot;    // 24 bits
  uint32_t worker;  // Worker::pack(), 24 bits; 0 while posted
  static constexpr uint32_t kLapMask = 0x7fff;
  static constexpr OrderWord unpack(uint64_t w) {
    return {static_cast<uint32_t>(w >> 49), (w >> 48 & 1) != 0, static_cast<uint32_t>(w >> 24) & 0xffffff,
            static_cast<uint32_t>(w) & 0xffffff};
  }
  constexpr uint64_t pack() const {
    return uint64_t{lap & kLapMask} << 49 | uint64_t{taken} << 48 | uint64_t{slot & 0xffffff} << 24 |
           (worker & 0xffffff);
  }
};

struct SharedReceiveRing {
  SharedSrq* shared = nullptr;
  std::atomic<uint64_t>* order_words =
      nullptr;  // nullptr: no such queue, or its offsets lie outside the segment
  std::byte* wqes = nullptr;
  std::byte* bounce_buffers = nullptr;
  uint32_t order = 0;
  uint32_t stride = 0;
  uint32_t max_sge = 0;
  SegmentView segment;  // for what was added to the queue later

  static SharedReceiveRing of(const SegmentView& segment, SharedSrq& shared);

  // The number of doublings since the queue was made.
  uint32_t growths() const {
    const uint32_t count = shared->growths.load(std::memory_order_seq_cst);
    return count <= kMaxSrqOrder - order ? count : 0;
  }
  uint64_t slots() const { return uint64_t{1} << (order + growths()); }
  uint64_t mask() const { return slots() - 1; }

  // slot < slots()
  ReceiveWqe& wqe(uint32_t slot) const {
    std::byte* const at = slot >> order == 0 ? wqes + uint64_t{slot} * stride : grown_wqe(slot);
    return *reinterpret_cast<ReceiveWqe*>(at);
  }
  std::byte* bounce(uint32_t slot) const {
    return slot >> order == 0 ? bounce_buffers + uint64_t{slot} * kBounceSize : grown_bounce(slot);
  }

  // The order ring that a position belongs to, and the position in it.
  struct Place {
    std::atomic<uint64_t>* words;
    uint64_t index;  // from the first position of the ring
    uint32_t order;
    std::atomic<uint64_t>& word() const { return words[index & (slots() - 1)]; }
    uint64_t slots() const { return uint64_t{1} << order; }
    uint32_t lap() const { return static_cast<uint32_t>((index >> order) + 1) & OrderWord::kLapMask; }
  };
  Place place(uint64_t position, uint32_t growths) const {
    return growths == 0 ? Place{order_words, position, order} : grown_place(position, growths);
  }
  Place place(uint64_t position) const { return place(position, growths()); }

  // Owner: the WQE in `slot` is complete and becomes the newest. The caller holds the queue's posting lock.
  // After the last one it calls finish_posts(), and then looks at SharedSrq::requesters_wait.
  void post(uint32_t slot) const;
  // The other half of the Dekker pair is a requester that asks to be woken, and then looks for a WQE again.
  static void finish_posts() { std::atomic_thread_fence(std::memory_order_seq_cst); }

  // Requester, under a hazard guard: takes the oldest WQE for `worker`. False: there is none, or the oldest
  // takes fewer than `length` bytes and stays. *limit_reached: fewer WQEs are left than the armed limit,
  // which is disarmed now; the caller must wake the owner to raise the event.
  bool take(uint32_t worker, uint32_t* slot, bool* limit_reached = nullptr, uint32_t length = 0) const;

  // Taker, in a stream: prefetches the next WQE, and order words a little after it.
  void expect_next() const {
    constexpr uint64_t kAhead = 8;  // one line
    if (order < 6) return;          // so near, the owner may be writing there
    const Place next = place(shared->head.load(std::memory_order_relaxed));
    prefetch(&next.words[(next.index + kAhead) & (next.slots() - 1)]);
    const OrderWord word = OrderWord::unpack(next.word().load(std::memory_order_relaxed));
    if (word.lap == next.lap() && !word.taken && word.slot >> order == 0) prefetch(&wqe(word.slot));
  }

  // For messages to people: the capacity of the oldest WQE at this moment. False: there is none.
  bool peek(uint32_t* length) const;

  // Taker, instead of a completion: there will be none, because its CQ had no space and ignores overruns.
  void abandon(uint32_t slot) const {
    std::atomic_ref(wqe(slot).abandoned).store(1, std::memory_order_release);
  }

  // `worker` has found no WQE and asks the owner to wake it when the next WQE is posted. False: too many
  // workers wait already, and `worker` has to poll.
  bool ask_to_be_woken(uint32_t worker) const;
  bool is_asked_for(uint32_t worker) const;  // nothing was posted since

  // WQEs that are posted and not taken: a snapshot, exact while no process posts or takes.
  uint64_t posted() const;

  // True for the one caller that finds fewer WQEs left than the limit, and so disarms it.
  bool disarm_if_below_limit() const;

 private:
  const SrqGrowth* growth(uint32_t index) const;  // nullptr: damaged
  std::byte* grown_wqe(uint32_t slot) const;
  std::byte* grown_bounce(uint32_t slot) const;
  Place grown_place(uint64_t position, uint32_t growths) const;
  bool take_known(uint32_t growths, uint32_t worker, uint32_t* slot, uint32_t length) const;
};

}  // namespace verbena
