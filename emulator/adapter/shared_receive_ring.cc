// SPDX-License-Identifier: BSD-2-Clause
#include "adapter/shared_receive_ring.h"

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
  if (order_offset == 0 || order > 24 || max_sge > 1024 || stride % alignof(ReceiveWqe) != 0 ||
      stride < sizeof(ReceiveWqe) + max_sge * sizeof(WqeSge))
    return {};
  const uint64_t slots = uint64_t{1} << order;
  auto* words = segment.at<std::atomic<uint64_t>>(order_offset, slots);
  auto* wqes =
      wqe_offset % alignof(ReceiveWqe) == 0 ? segment.at<std::byte>(wqe_offset, slots * stride) : nullptr;
  auto* bounce_buffers = segment.at<std::byte>(once(shared.bounce_offset), slots * kBounceSize);
  if (words == nullptr || wqes == nullptr || bounce_buffers == nullptr) return {};
  return {&shared, words, wqes, bounce_buffers, order, stride, max_sge};
}

void SharedReceiveRing::post(uint32_t slot) const {
  const uint64_t position = shared->posted.load(std::memory_order_relaxed);
  word(position).store(OrderWord{lap(position), false, slot, 0}.pack(), std::memory_order_release);
  shared->posted.store(position + 1, std::memory_order_seq_cst);
}

bool SharedReceiveRing::peek(uint32_t* length) const {
  if (order_words == nullptr) return false;
  const uint64_t end = shared->posted.load(std::memory_order_acquire);
  uint64_t position = shared->head.load(std::memory_order_acquire);
  for (uint64_t steps = slots(); steps != 0 && position < end; --steps, ++position) {
    const OrderWord found = OrderWord::unpack(word(position).load(std::memory_order_acquire));
    if (found.taken || found.slot > mask()) continue;
    *length = std::atomic_ref(wqe(found.slot).length).load(std::memory_order_relaxed);
    return true;
  }
  return false;
}

bool SharedReceiveRing::take(uint32_t worker, uint32_t* slot, bool* limit_reached, uint32_t length) const {
  if (limit_reached != nullptr) *limit_reached = false;
  if (order_words == nullptr) return false;
  uint64_t began = shared->head.load(std::memory_order_relaxed);
  uint64_t position = began;
  // In a sound ring the search ends within two laps. The bound is for damaged rings, which count as empty.
  for (uint64_t steps = 0x10000 + 2 * slots(); steps != 0; --steps) {
    uint64_t seen = word(position).load(std::memory_order_acquire);
    const OrderWord found = OrderWord::unpack(seen);
    const int32_t ahead = laps_ahead(found.lap, lap(position));
    if (ahead < 0) return false;
    if (ahead > 0) {
      // The head was old. The place was used again, so this position is taken, and so is the position
      // `slots()` later in each further lap.
      position += (static_cast<uint64_t>(ahead - 1) << order) + 1;
      continue;
    }
    if (found.taken) {
      ++position;
      continue;
    }
    if (found.slot > mask()) return false;
    // Values read before the WQE is taken may be torn; in that case the compare-and-swap below fails.
    if (length != 0 && std::atomic_ref(wqe(found.slot).length).load(std::memory_order_relaxed) < length) {
      if (word(position).load(std::memory_order_acquire) == seen) return false;
      continue;
    }
    // Sequentially consistent, as is the look at the limit below: an owner that arms the limit either sees
    // this WQE taken or is seen here (disarm_if_below_limit).
    if (!word(position).compare_exchange_strong(seen, OrderWord{found.lap, true, found.slot, worker}.pack(),
                                                std::memory_order_seq_cst))
      continue;
    shared->head.compare_exchange_strong(began, position + 1, std::memory_order_seq_cst);
    *slot = found.slot;
    const bool reached = disarm_if_below_limit();
    if (limit_reached != nullptr) *limit_reached = reached;
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
    const OrderWord found = OrderWord::unpack(word(position).load(std::memory_order_acquire));
    const int32_t ahead = laps_ahead(found.lap, lap(position));
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
