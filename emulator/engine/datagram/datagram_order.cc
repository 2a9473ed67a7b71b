// SPDX-License-Identifier: BSD-2-Clause
#include "engine/datagram/datagram_order.h"

#include <sched.h>

#include <algorithm>

#include "adapter/clock.h"
#include "engine/datagram/datagram_targets.h"
#include "engine/responder/placement.h"

namespace verbena {
namespace {

// How long a message waits for the receiver to scatter earlier messages. A process that runs does so in that
// time, even on a busy machine. What a receiver's damaged memory promises never comes.
constexpr int64_t kSettling = 500'000'000;  // ns

// Does the datagram of `entry` go into one of the ranges?
bool overlaps(const Destination& to, const Cqe& entry, const iovec* ranges, size_t count) {
  const SharedReceiveRing& ring = to.receives;
  return leads_into(ring.wqe(entry.index & static_cast<uint32_t>(ring.mask())), ring.max_sge, ranges, count);
}

// Is `entry` the completion of a WQE of the same queue: of the queue pair, or of its SRQ?
bool of_same_queue(const Destination& to, const Cqe& entry) {
  if (entry.qp_index == to.index) return entry.qp_incarnation == to.incarnation;
  if ((entry.flags & (kCqeFromShared | kCqeXrc)) != kCqeFromShared) return false;
  const SharedQp* other = to.adapter->view().qp(entry.qp_index);
  return other != nullptr && other->srq == to.qp->srq;
}

// What the CQ has between the head and `end`: earlier messages, from any sender.
struct LiesBefore {
  bool eager = false;       // one of them is in its receive slot and goes into the ranges
  bool unfinished = false;  // one of them is still being appended, and may do so
  bool any() const { return eager || unfinished; }
};

// Will the unfinished entry at `position` never be finished? Its producer is dead, or the consumer has
// skipped it.
bool never_comes(const CompletionRing& ring, uint64_t position, const NodeDirectory& directory) {
  const uint64_t claim = ring.claims[ring.place(position)].load(std::memory_order_acquire);
  if (directory.worker_alive(ClaimWord::unpack(claim).worker)) return false;
  const uint64_t state = ring.entry(position).state.load(std::memory_order_acquire);
  return CqeState::unpack(state).lap != ring.lap(position);
}

LiesBefore look_before(Destination& to, const NodeDirectory& directory, uint64_t position, uint64_t end,
                       const iovec* ranges, size_t count) {
  const CompletionRing& ring = to.completions;
  LiesBefore found;
  bool settled = true;
  for (; position < end; ++position) {
    const Cqe& entry = ring.entry(position);
    const CqeState state = CqeState::unpack(entry.state.load(std::memory_order_acquire));
    if (state.lap != ring.lap(position)) {
      if (!never_comes(ring, position, directory)) {
        found.unfinished = true;
        settled = false;
      }
    } else if (state.kind == CqeKind::kEager && of_same_queue(to, entry)) {
      settled = false;
      if (overlaps(to, entry, ranges, count)) found.eager = true;
    }
    if (settled) to.settled_until = position + 1;
  }
  return found;
}

LiesBefore lies_before(Destination& to, const NodeDirectory& directory, uint64_t end, const iovec* ranges,
                       size_t count) {
  const CompletionRing& ring = to.completions;
  // Resizing scatters, and the new ring's positions begin again.
  if (ring.generation != to.settled_generation) {
    to.settled_generation = ring.generation;
    to.settled_until = 0;
  }
  // The consumer's head is read only when it makes a difference: the consumer writes that cache line.
  LiesBefore found{true, true};
  uint64_t head = ring.known_head->load(std::memory_order_relaxed);
  for (bool fresh : {false, true}) {
    if (fresh) head = ring.places->head.load(std::memory_order_acquire);
    const uint64_t position = std::max(to.settled_until, head);
    // No more than the ring holds, whatever the receiver's memory says.
    if (end - position > ring.capacity()) return {};
    found = look_before(to, directory, position, end, ranges, count);
    if (!found.any()) break;
  }
  return found;
}

}  // namespace

bool settle(Destination& to, const NodeDirectory& directory, uint64_t end, const iovec* ranges, size_t count,
            Until until) {
  constexpr int64_t kCallAgain = 1'000'000;
  const auto unsettled = [&](LiesBefore* found) {
    *found = lies_before(to, directory, end, ranges, count);
    return found->eager || (until == Until::kUnfinishedAreScattered && found->unfinished);
  };
  LiesBefore found;
  if (!unsettled(&found)) return false;
  const uint64_t head = to.completions.places->head.load(std::memory_order_relaxed);
  if (to.waited_in_vain && to.waited_in_vain_at == head) return false;
  const int64_t give_up_at = now_ns() + kSettling;
  for (int64_t call_at = 0; unsettled(&found); sched_yield()) {
    const int64_t now = now_ns();
    if (found.eager && now >= call_at) {
      to.qp->pending_flags.fetch_or(kPendingScatter, std::memory_order_acq_rel);
      to.adapter->report(*to.qp);
      call_at = now + kCallAgain;
    }
    if (!to.adapter->alive(directory)) return false;
    if (now < give_up_at) continue;
    to.waited_in_vain = true;
    to.waited_in_vain_at = head;
    to.settled_until = end;
    return false;
  }
  return true;
}

}  // namespace verbena
