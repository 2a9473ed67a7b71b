// SPDX-License-Identifier: BSD-2-Clause
#include "adapter/receive_ring.h"

#include <type_traits>

#include "adapter/segment.h"

namespace verbena {

ReceiveRing ReceiveRing::of(const SegmentView& segment, const SharedQp& shared) {
  // Read once: a hostile owner may change the values between the check and the use.
  const auto once = [](const auto& field) {
    using Field = std::remove_cvref_t<decltype(field)>;
    return std::atomic_ref(const_cast<Field&>(field)).load(std::memory_order_relaxed);
  };
  const uint32_t order = once(shared.rq_order), max_sge = once(shared.rq_max_sge),
                 stride = once(shared.rq_stride);
  const uint64_t ready_offset = once(shared.rq_ready_offset);
  if (ready_offset == 0 || order > 24 || max_sge > 1024 || stride % alignof(ReceiveWqe) != 0 ||
      stride < sizeof(ReceiveWqe) + max_sge * sizeof(WqeSge))
    return {};
  const uint64_t slots = uint64_t{1} << order;
  auto* ready = segment.at<std::atomic<uint64_t>>(ready_offset, slots);
  const uint64_t wqe_offset = once(shared.rq_wqe_offset);
  auto* wqes =
      wqe_offset % alignof(ReceiveWqe) == 0 ? segment.at<std::byte>(wqe_offset, slots * stride) : nullptr;
  auto* bounce_buffers = segment.at<std::byte>(once(shared.rq_bounce_offset), slots * kBounceSize);
  if (ready == nullptr || wqes == nullptr || bounce_buffers == nullptr) return {};
  return {ready, wqes, bounce_buffers, order, stride, max_sge};
}

}  // namespace verbena
