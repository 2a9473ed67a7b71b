// SPDX-License-Identifier: BSD-2-Clause
#include "adapter/shared_receive_ring.h"

#include <bit>
#include <type_traits>

namespace verbena {
namespace {

// The number of laps by which `word` is ahead of `wanted`: the difference of two 15-bit numbers.
int32_t laps_ahead(uint32_t word, uint32_t wanted) {
  const uint32_t difference = (word - wanted) & OrderWord::kLapMask;
  return difference > OrderWord::kLapMask / 2
             ? static_cast<int32_t>(difference) - int32_t{OrderWord::kLapMask} - 1
             : static_cast<int32_t>(difference);
}

}  // namespace

SharedReceiveRing SharedReceiveRing::of(const SegmentView& segment, SharedSrq& shared) {
  // Read once: a hostile owner may change the values between the check and the use.
  const auto once = [](auto& field) { return std::atomic_ref(field).load(std::memory_order_relaxed); };
  const uint32_t order = once(shared.order), max_sge = once(shared.max_sge), stride = once(shared.stride);
  const uint64_t order_offset = once(shared.order_offset), wqe_offset = once(shared.wqe_offset);
  if (order_offset == 0 || order > kMaxSrqOrder || max_sge > 1024 || stride % alignof(ReceiveWqe) != 0 ||
      stride < sizeof(ReceiveWqe) + max_sge * sizeof(WqeSge))
    return {};
  const uint64_t slots = uint64_t{1} << order;
  auto* words = segment.at<std::atomic<uint64_t>>(order_offset, slots);
  auto* wqes =
      wqe_offset % alignof(ReceiveWqe) == 0 ? segment.at<std::byte>(wqe_offset, slots * stride) : nullptr;
  auto* bounce_buffers = segment.at<std::byte>(once(shared.bounce_offset), slots * kBounceSize);
  if (words == nullptr || wqes == nullptr || bounce_buffers == nullptr) return {};
  return {&shared, words, wqes, bounce_buffers, order, stride, max_sge, segment};
}

const SrqGrowth* SharedReceiveRing::growth(uint32_t index) const {
  const uint64_t offset = std::atomic_ref(shared->growth_offset).load(std::memory_order_relaxed);
  const auto* all = offset != 0 ? segment.at<SrqGrowth>(offset, kMaxSrqGrowths) : nullptr;
  return all != nullptr ? all + index : nullptr;
}

namespace {

// The object for `slot` in the growth that it came with. nullptr: the growth is damaged.
template <uint64_t SrqGrowth::*offset>
std::byte* in_growth(const SegmentView& segment, const SrqGrowth* growth, uint32_t slot, uint64_t size) {
  if (growth == nullptr) return nullptr;
  const uint64_t first = std::bit_floor(slot);
  const uint64_t begin =
      std::atomic_ref(const_cast<uint64_t&>(growth->*offset)).load(std::memory_order_relaxed);
  auto* const all = begin % alignof(ReceiveWqe) == 0 ? segment.at<std::byte>(begin, first * size) : nullptr;
  return all != nullptr ? all + (slot - first) * size : nullptr;
}

}  // namespace

// In a damaged queue every slot that was added is slot 0.
std::byte* SharedReceiveRing::grown_wqe(uint32_t slot) const {
  const auto index = static_cast<uint32_t>(std::bit_width(slot)) - 1 - order;
  auto* const at = in_growth<&SrqGrowth::wqe_offset>(segment, growth(index), slot, stride);
  return at != nullptr ? at : wqes;
}

std::byte* SharedReceiveRing::grown_bounce(uint32_t slot) const {
  const auto index = static_cast<uint32_t>(std::bit_width(slot)) - 1 - order;
  auto* const at = in_growth<&SrqGrowth::bounce_offset>(segment, growth(index), slot, kBounceSize);
  return at != nullptr ? at : bounce_buffers;
}

SharedReceiveRing::Place SharedReceiveRing::grown_place(uint64_t position, uint32_t growths) const {
  for (uint32_t i = growths; i-- != 0;) {
    const SrqGrowth* const added = growth(i);
    if (added == nullptr) break;
    const uint64_t start =
        std::atomic_ref(const_cast<uint64_t&>(added->start)).load(std::memory_order_relaxed);
    if (position < start) continue;
    const uint32_t grown = order + i + 1;
    auto* const words = segment.at<std::atomic<uint64_t>>(
        std::atomic_ref(const_cast<uint64_t&>(added->order_offset)).load(std::memory_order_relaxed),
        uint64_t{1} << grown);
    if (words != nullptr) return {words, position - start, grown};
  }
  return {order_words, position, order};
}

void SharedReceiveRing::post(uint32_t slot) const {
  const uint64_t position = shared->posted.load(std::memory_order_relaxed);
  const Place to = place(position);
  to.word().store(OrderWord{to.lap(), false, slot, 0}.pack(), std::memory_order_release);
  shared->posted.store(position + 1, std::memory_order_release);
}

bool SharedReceiveRing::peek(uint32_t* length) const {
  if (order_words == nullptr) return false;
  const uint64_t end = shared->posted.load(std::memory_order_acquire);
  uint64_t position = shared->head.load(std::memory_order_acquire);
  for (uint64_t steps = slots(); steps != 0 && position < end; --steps, ++position) {
    const OrderWord found = OrderWord::unpack(place(position).word().load(std::memory_order_acquire));
    if (found.taken || found.slot > mask()) continue;
    *length = std::atomic_ref(wqe(found.slot).length).load(std::memory_order_relaxed);
    return true;
  }
  return false;
}

bool SharedReceiveRing::take(uint32_t worker, uint32_t* slot, bool* limit_reached, uint32_t length) const {
  if (limit_reached != nullptr) *limit_reached = false;
  if (order_words == nullptr) return false;
  // A WQE posted to a ring that was added during the search is not seen by it.
  uint32_t known = growths();
  while (!take_known(known, worker, slot, length)) {
    const uint32_t now = growths();
    if (now <= known) return false;
    known = now;
  }
  const bool reached = disarm_if_below_limit();
  if (limit_reached != nullptr) *limit_reached = reached;
  return true;
}

bool SharedReceiveRing::take_known(uint32_t growths, uint32_t worker, uint32_t* slot, uint32_t length) const {
  uint64_t began = shared->head.load(std::memory_order_relaxed);
  uint64_t position = began;
  const uint64_t all_slots = uint64_t{1} << (order + growths);
  // In a sound ring the search ends within two laps. The bound is for damaged rings, which count as empty.
  for (uint64_t steps = 0x10000 + 2 * all_slots; steps != 0; --steps) {
    const Place at = place(position, growths);
    uint64_t seen = at.word().load(std::memory_order_acquire);
    const OrderWord found = OrderWord::unpack(seen);
    const int32_t ahead = laps_ahead(found.lap, at.lap());
    if (ahead < 0) return false;
    if (ahead > 0) {
      // The head was old. The place was used again, so this position is taken, and so is the position
      // `at.slots()` later in each further lap.
      position += (static_cast<uint64_t>(ahead - 1) << at.order) + 1;
      continue;
    }
    if (found.taken) {
      ++position;
      continue;
    }
    if (found.slot >= all_slots) return false;
    // Values read before the WQE is taken may be torn; in that case the compare-and-swap below fails.
    if (length != 0 && std::atomic_ref(wqe(found.slot).length).load(std::memory_order_relaxed) < length) {
      if (at.word().load(std::memory_order_acquire) == seen) return false;
      continue;
    }
    // Sequentially consistent, as is the look at the limit in take(): an owner that arms the limit either
    // sees this WQE taken or is seen there (disarm_if_below_limit).
    if (!at.word().compare_exchange_strong(seen, OrderWord{found.lap, true, found.slot, worker}.pack(),
                                           std::memory_order_seq_cst))
      continue;
    shared->head.compare_exchange_strong(began, position + 1, std::memory_order_seq_cst);
    *slot = found.slot;
    return true;
  }
  return false;
}

bool SharedReceiveRing::is_asked_for(uint32_t worker) const {
  for (const std::atomic<uint32_t>& waiter : shared->waiters)
    if (waiter.load(std::memory_order_acquire) == (SharedSrq::kWaits | worker)) return true;
  return false;
}

bool SharedReceiveRing::ask_to_be_woken(uint32_t worker) const {
  bool written = is_asked_for(worker);
  for (std::atomic<uint32_t>& waiter : shared->waiters) {
    if (written) break;
    uint32_t free = 0;
    written = waiter.compare_exchange_strong(free, SharedSrq::kWaits | worker, std::memory_order_seq_cst);
  }
  // Last: a process that sees this flag also sees the word.
  if (written) shared->requesters_wait.store(1, std::memory_order_seq_cst);
  return written;
}

uint64_t SharedReceiveRing::posted() const {
  const uint64_t end = shared->posted.load(std::memory_order_seq_cst);
  uint64_t position = shared->head.load(std::memory_order_seq_cst);
  // The head may lag behind: takers are about to move it.
  for (; static_cast<int64_t>(end - position) > 0; ++position) {
    const Place at = place(position);
    const OrderWord found = OrderWord::unpack(at.word().load(std::memory_order_acquire));
    const int32_t ahead = laps_ahead(found.lap, at.lap());
    if (ahead < 0 || (ahead == 0 && !found.taken)) break;
  }
  return static_cast<int64_t>(end - position) > 0 ? end - position : 0;
}

bool SharedReceiveRing::disarm_if_below_limit() const {
  const uint32_t limit = shared->limit.load(std::memory_order_seq_cst);
  if (limit == 0 || posted() >= limit) return false;
  uint32_t armed = limit;
  if (!shared->limit.compare_exchange_strong(armed, 0, std::memory_order_acq_rel)) return false;
  shared->limit_reached.store(1, std::memory_order_release);
  return true;
}

}  // namespace verbena
