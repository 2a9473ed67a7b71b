// SPDX-License-Identifier: BSD-2-Clause
//
// The receive queue of a QP. The owner posts to it. The one requester that is connected to the QP takes from
// it. A slot is reused when its completion has been polled; only the owner counts that.
#pragma once

#include <cstdint>
#include <type_traits>

#include "adapter/prefetch.h"
#include "adapter/segment.h"

namespace verbena {

struct ReceiveRing {
  std::atomic<uint64_t>* ready = nullptr;
  std::byte* wqes = nullptr;
  std::byte* bounce_buffers = nullptr;
  uint32_t order = 0;
  uint32_t stride = 0;
  uint32_t max_sge = 0;

  // The ring of `qp`. `ready` is nullptr when the offsets do not lie within the segment, or when the QP has
  // no receive queue.
  static ReceiveRing of(const SegmentView& segment, const SharedQp& shared) {
    // Read once: a hostile owner may change the values between the check and the use.
    const auto once = [](const auto& field) {
      using Field = std::remove_cvref_t<decltype(field)>;
      return std::atomic_ref(const_cast<Field&>(field)).load(std::memory_order_relaxed);
    };
    const uint32_t order = once(shared.rq_order), max_sge = once(shared.rq_max_sge), stride = once(shared.rq_stride);
    const uint64_t ready_offset = once(shared.rq_ready_offset);
    if (ready_offset == 0 || order > 24 || max_sge > 1024 || stride % alignof(ReceiveWqe) != 0 ||
        stride < sizeof(ReceiveWqe) + max_sge * sizeof(WqeSge))
      return {};
    const uint64_t slots = uint64_t{1} << order;
    auto* ready = segment.at<std::atomic<uint64_t>>(ready_offset, slots);
    const uint64_t wqe_offset = once(shared.rq_wqe_offset);
    auto* wqes = wqe_offset % alignof(ReceiveWqe) == 0 ? segment.at<std::byte>(wqe_offset, slots * stride) : nullptr;
    auto* bounce_buffers = segment.at<std::byte>(once(shared.rq_bounce_offset), slots * kBounceSize);
    if (ready == nullptr || wqes == nullptr || bounce_buffers == nullptr) return {};
    return {ready, wqes, bounce_buffers, order, stride, max_sge};
  }

  uint64_t mask() const { return (uint64_t{1} << order) - 1; }
  static uint8_t lap(uint64_t number, uint32_t order) { return static_cast<uint8_t>((number >> order) + 1); }

  ReceiveWqe& wqe(uint64_t number) const {
    return *reinterpret_cast<ReceiveWqe*>(wqes + (number & mask()) * stride);
  }
  std::byte* bounce(uint64_t number) const { return bounce_buffers + (number & mask()) * kBounceSize; }

  // Owner: publishes WQE `number` (a running number).
  void publish(uint64_t number, uint32_t epoch, uint32_t length) const {
    ready[number & mask()].store(ReadyWord{lap(number, order), epoch, length}.pack(), std::memory_order_release);
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

  // Requester, in a stream: prefetches the words of WQEs a little after `number`.
  void expect(uint64_t number) const {
    constexpr uint64_t kAhead = 16;  // two lines
    prefetch(&ready[(number + kAhead) & mask()]);
  }
};

}  // namespace verbena
