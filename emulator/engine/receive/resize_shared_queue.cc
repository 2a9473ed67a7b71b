// SPDX-License-Identifier: BSD-2-Clause
//
// A receive queue is made larger by doublings (SrqGrowth in adapter/layout.h): each adds an order ring for
// all slots, and slots. Nothing that is posted moves, and no requester is waited for. A queue that is made
// smaller keeps its memory, and only the number of requests that may be posted falls.
#include <errno.h>

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "engine/objects/process.h"
#include "engine/receive/shared_receive_queue.h"

namespace verbena {
namespace {

// What a doubling adds, before it is published.
struct Addition {
  SrqGrowth shared;
  std::unique_ptr<Srq::Slot[]> slots;
  Srq::Memory memory;
};

uint64_t whole_lines(uint64_t bytes) { return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine; }

// Doubles a queue of 1 << `order` slots. ENOMEM; throws std::bad_alloc.
int make_addition(Srq& srq, uint32_t order, Addition* out) {
  const uint64_t added = uint64_t{1} << order;
  const uint64_t order_bytes = whole_lines(4 * added * sizeof(OrderEntry));
  const uint64_t wqe_bytes = whole_lines(added * srq.ring.stride);
  out->slots = std::make_unique<Srq::Slot[]>(added);
  out->memory.bytes = order_bytes + wqe_bytes + added * kBounceSize;
  const uint64_t offset = out->memory.offset = srq.process->segment().allocate(out->memory.bytes);
  if (offset == 0) return ENOMEM;
  out->shared = {.start = 0,
                 .order_offset = offset,
                 .wqe_offset = offset + order_bytes,
                 .bounce_offset = offset + order_bytes + wqe_bytes};
  return 0;
}

// Everything that room for `room` requests needs beyond what there is. Under modify_mutex.
int make_additions(Srq& srq, uint32_t room, std::vector<Addition>* out) {
  const uint32_t present = srq.ring.order + srq.ring.growths();
  const auto wanted = static_cast<uint32_t>(std::bit_width(room - 1));
  if (wanted <= present) return 0;
  srq.memory.reserve(srq.memory.size() + wanted - present + 1);
  out->reserve(wanted - present);
  for (uint32_t order = present; order < wanted; ++order) {
    Addition addition;
    if (int error = make_addition(srq, order, &addition); error != 0) return error;
    out->push_back(std::move(addition));
  }
  return 0;
}

// The table of growths, made by the first one. Under modify_mutex.
SrqGrowth* table_of_growths(Srq& srq) {
  SharedSrq& shared = *srq.shared;
  OwnSegment& segment = srq.process->segment();
  if (shared.growth_offset == 0) {
    constexpr uint64_t kBytes = sizeof(SrqGrowth) * kMaxSrqGrowths;
    const uint64_t offset = segment.allocate(kBytes);
    if (offset == 0) return nullptr;
    srq.memory.push_back({offset, kBytes});
    std::atomic_ref(shared.growth_offset).store(offset, std::memory_order_relaxed);
  }
  return segment.view().at<SrqGrowth>(shared.growth_offset, kMaxSrqGrowths);
}

// Under both locks. Does not fail.
void publish(Srq& srq, std::vector<Addition>& additions, SrqGrowth* table) {
  for (Addition& addition : additions) {
    const uint32_t count = srq.shared->growths.load(std::memory_order_relaxed);
    addition.shared.start = srq.shared->posted.load(std::memory_order_relaxed);
    table[count] = addition.shared;
    srq.grown_slots[count] = std::move(addition.slots);
    srq.memory.push_back(addition.memory);
    srq.shared->growths.store(count + 1, std::memory_order_seq_cst);
  }
}

// Under both locks.
int change_room(Srq& srq, uint32_t least, uint32_t room, std::vector<Addition>& additions, SrqGrowth* table,
                uint32_t* in_use) {
  *in_use = srq.in_use();
  if (*in_use > least) return EINVAL;
  // The slots that are new come last.
  std::vector<uint32_t> free;
  if (room > srq.issued) {
    free.reserve(srq.free.size() + room - srq.issued);
    for (uint32_t slot = room; slot-- > srq.issued;) free.push_back(slot);
    free.insert(free.end(), srq.free.begin(), srq.free.end());
  }
  publish(srq, additions, table);
  if (room > srq.issued) {
    srq.free = std::move(free);
    srq.issued = room;
  }
  srq.room = room;
  return 0;
}

}  // namespace

int resize_shared_queue(Srq& srq, uint32_t least, uint32_t room, uint32_t* in_use) {
  *in_use = 0;
  if (room < srq.room) reclaim_slots(srq);
  std::vector<Addition> additions;
  int error = ENOMEM;
  try {
    error = make_additions(srq, room, &additions);
    SrqGrowth* const table = error == 0 && !additions.empty() ? table_of_growths(srq) : nullptr;
    if (error == 0 && !additions.empty() && table == nullptr) error = ENOMEM;
    if (error == 0) {
      std::lock_guard lock(srq.lock);
      error = change_room(srq, least, room, additions, table, in_use);
    }
  } catch (const std::bad_alloc&) {
    error = ENOMEM;
  }
  if (error != 0)
    for (const Addition& addition : additions)
      srq.process->segment().release(addition.memory.offset, addition.memory.bytes);
  return error;
}

}  // namespace verbena
