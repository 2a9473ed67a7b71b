// SPDX-License-Identifier: BSD-2-Clause
//
// The receive queue of a QP: filled by its owner (post), emptied by the one feeder that is connected to it.
// A slot is reused when its completion has been polled, which the owner alone counts.
#pragma once

#include <cstdint>

#include "adapter/segment.h"

namespace verbena {

struct ReceiveRing {
  std::atomic<uint64_t>* ready = nullptr;
  std::byte* wqes = nullptr;
  std::byte* landings = nullptr;
  uint32_t order = 0;
  uint32_t stride = 0;
  uint32_t max_sge = 0;

  // The ring of `qp`, or one with ready == nullptr when the offsets do not lie within the segment or the QP has
  // no receive queue.
  static ReceiveRing of(const SegmentView& segment, const SharedQp& qp) {
    ReceiveRing ring;
    // Read once: what is checked is what is used, whoever writes there meanwhile.
    const uint32_t order = *const_cast<const volatile uint32_t*>(&qp.rq_order);
    const uint32_t stride = *const_cast<const volatile uint32_t*>(&qp.rq_stride);
    const uint32_t max_sge = *const_cast<const volatile uint32_t*>(&qp.rq_max_sge);
    if (order > 24 || max_sge > 1024 || stride < sizeof(ReceiveWqe) + max_sge * sizeof(WqeSge) ||
        stride % alignof(ReceiveWqe) != 0 || qp.rq_wqe_offset % alignof(ReceiveWqe) != 0)
      return ring;
    const uint64_t slots = uint64_t{1} << order;
    auto* ready = segment.at<std::atomic<uint64_t>>(qp.rq_ready_offset, slots);
    auto* wqes = segment.at<std::byte>(qp.rq_wqe_offset, slots * stride);
    auto* landings = segment.at<std::byte>(qp.rq_landing_offset, slots * kLandingSize);
    if (qp.rq_ready_offset == 0 || ready == nullptr || wqes == nullptr || landings == nullptr) return ring;
    return {ready, wqes, landings, order, stride, max_sge};
  }

  uint64_t mask() const { return (uint64_t{1} << order) - 1; }
  static uint8_t lap(uint64_t number, uint32_t order) { return static_cast<uint8_t>((number >> order) + 1); }

  ReceiveWqe& wqe(uint64_t number) const {
    return *reinterpret_cast<ReceiveWqe*>(wqes + (number & mask()) * stride);
  }
  std::byte* landing(uint64_t number) const { return landings + (number & mask()) * kLandingSize; }

  // Owner: makes the WQE of running number `number` visible.
  void publish(uint64_t number, uint32_t epoch, uint32_t length) const {
    ready[number & mask()].store(ReadyWord{lap(number, order), epoch, length}.pack(), std::memory_order_release);
  }

  // Feeder: is WQE `number` there?
  bool peek(uint64_t number, ReadyWord* out) const {
    *out = ReadyWord::unpack(ready[number & mask()].load(std::memory_order_acquire));
    return out->lap == lap(number, order);
  }
};

}  // namespace verbena
