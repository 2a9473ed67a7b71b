// SPDX-License-Identifier: BSD-2-Clause
//
// Who is at work in whose adapter. An initiator says so before it looks at anything of the target that may be
// taken away, and takes it back when it is done; teardown at the target first makes the object unreachable, then
// waits until nobody who might have seen it before is still at work (as hazard pointers do, Michael 2004).
// The record lies in the node directory, so that the waiting needs no map of the initiators' segments.
#pragma once

#include <cstdint>

#include "fabric/node_directory.h"

namespace verbena {

// The first so many records of a slot belong to the threads of its process, one each for as long as the
// thread lives; the others are for further threads, and for hazard guards within a hazard guard.
inline constexpr uint32_t kThreadRecords = 24;

struct ThreadRecord {
  static constexpr uint32_t kNotAsked = UINT32_MAX;
  uint32_t index = kNotAsked;  // below kThreadRecords: the calling thread's own
  uint64_t guards = 0;         // so that one hazard guard is told from the next
};
__attribute__((tls_model("initial-exec"))) inline constinit thread_local ThreadRecord thread_record;

// A hazard guard on `target_slot`'s adapter, from the constructor or begin() to end() or the destructor. Once
// it has begun everything read from the target is at least as new as any teardown that does not wait for this
// hazard guard.
class HazardGuard {
 public:
  HazardGuard() = default;
  HazardGuard(const NodeDirectory& directory, uint32_t own_slot, uint32_t target_slot) {
    begin(directory, own_slot, target_slot);
  }
  ~HazardGuard() { end(); }
  HazardGuard(const HazardGuard&) = delete;
  HazardGuard& operator=(const HazardGuard&) = delete;

  void begin(const NodeDirectory& directory, uint32_t own_slot, uint32_t target_slot) {
    end();
    // Sequentially consistent: the record must be visible before the first look at the target. Teardown
    // orders its own two steps by a fence likewise (a Dekker race).
    if (announce(directory, own_slot, target_slot))
      std::atomic_thread_fence(std::memory_order_seq_cst);
    else
      begin_slowly(directory, own_slot, target_slot);
  }

  // The same for a caller who is about to take a lock: the hazard guard has begun when
  // confirm_after_locking() returns. False: it has not, and begin() it is.
  bool announce(const NodeDirectory& directory, uint32_t own_slot, uint32_t target_slot) {
    if (thread_record.index >= kThreadRecords) [[unlikely]]
      return false;
    std::atomic<uint64_t>& record = directory.hazard(own_slot, thread_record.index).target;
    if (record.load(std::memory_order_relaxed) != 0 ||
        directory.slot(own_slot).hazards_used.load(std::memory_order_relaxed) <= thread_record.index)
        [[unlikely]]
      return false;
    record.store(word_of(target_slot), std::memory_order_relaxed);
    record_ = &record;
    target_ = target_slot;
    return true;
  }

  // After an atomic exchange that followed announce().
  static void confirm_after_locking() {
#if defined(__x86_64__)
    std::atomic_signal_fence(
        std::memory_order_seq_cst);  // any locked instruction is a full fence (Intel SDM 3A, 8.2.5)
#else
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
  }

  void end() {
    if (record_ == nullptr) return;
    record_->store(0, std::memory_order_release);
    record_ = nullptr;
  }

  bool is_to(uint32_t target_slot) const { return record_ != nullptr && target_ == target_slot; }

 private:
  static uint64_t word_of(uint32_t target_slot) {
    return (uint64_t{target_slot} + 1) << 48 | (++thread_record.guards & 0xffff'ffff'ffff);
  }
  void begin_slowly(const NodeDirectory& directory, uint32_t own_slot, uint32_t target_slot);

  std::atomic<uint64_t>* record_ = nullptr;  // nullptr: without a hazard guard
  uint32_t target_ = 0;
};

inline constexpr uint32_t kAnySlot = UINT32_MAX;

// Waits until every hazard guard on `target_slot` that had begun before the call is over or its process dead.
// `from_slot`: only that process's hazard guards matter, so that the others, stopped or not, keep nobody
// waiting. `on_stall(context, pid)` is called once for each process that keeps the caller waiting longer than
// a second.
void wait_for_hazards(const NodeDirectory& directory, uint32_t target_slot, uint32_t from_slot,
                       void (*on_stall)(void* context, int32_t pid), void* context);

// Waits until every hazard guard that the threads of `own_slot` (this process) had begun is over. Not under a
// hazard guard.
void wait_for_hazards_of(const NodeDirectory& directory, uint32_t own_slot);

// The same as wait_for_hazards, but not longer than about `patience_ns` for each hazard guard. False:
// somebody is still there.
bool hazards_released(const NodeDirectory& directory, uint32_t target_slot, uint32_t from_slot,
                      int64_t patience_ns);

}  // namespace verbena
