// SPDX-License-Identifier: BSD-2-Clause
//
// Hazard guards: which thread works on which adapter (hazard pointers, Michael 2004).
// - An initiator publishes a record before it looks at anything of the target that may be freed, and clears
//   the record when it is done.
// - Teardown at the target first makes the object unreachable, then waits until no thread that may have seen
//   the object is still at work.
// The records lie in the node directory, so that a waiter needs no mapping of the initiators' segments.
#pragma once

#include <cstdint>

#include "fabric/node_directory.h"

namespace verbena {

// The first kThreadRecords records of a slot belong to threads of its process, one each for the life of the
// thread. The others are for further threads, and for nested guards.
inline constexpr uint32_t kThreadRecords = 24;

struct ThreadRecord {
  static constexpr uint32_t kNotAsked = UINT32_MAX;
  uint32_t index = kNotAsked;  // below kThreadRecords: the calling thread's own
  uint64_t guards = 0;         // distinguishes one guard from the next
};
__attribute__((tls_model("initial-exec"))) inline constinit thread_local ThreadRecord thread_record;

// A hazard guard on the adapter of `target_slot`, from the constructor or begin() to end() or the destructor.
// Everything that is read from the target under the guard is at least as new as any teardown that does not
// wait for the guard.
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
    // orders its own two steps by a fence in the same way (a Dekker race).
    if (announce(directory, own_slot, target_slot))
      std::atomic_thread_fence(std::memory_order_seq_cst);
    else
      begin_slowly(directory, own_slot, target_slot);
  }

  // The same for a caller that is about to take a lock: the guard holds once confirm_after_locking() returns.
  // False: it does not, and the caller must use begin().
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

  // Call after announce() and a following atomic exchange.
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

  std::atomic<uint64_t>* record_ = nullptr;  // nullptr: no guard
  uint32_t target_ = 0;
};

inline constexpr uint32_t kAnySlot = UINT32_MAX;

// Waits until every hazard guard on `target_slot` that began before the call is released or its process dead.
// `from_slot`: only guards of that process are waited for, so that other processes, stopped or not, do not
// delay the caller. `on_stall(context, pid)` is called once for each process that delays the caller for
// longer than a second.
void wait_for_hazards(const NodeDirectory& directory, uint32_t target_slot, uint32_t from_slot,
                       void (*on_stall)(void* context, int32_t pid), void* context);

// Waits until every hazard guard that threads of `own_slot` (this process) began before the call is released.
// The caller must hold no guard.
void wait_for_hazards_of(const NodeDirectory& directory, uint32_t own_slot);

// As wait_for_hazards(), but waits no longer than about `patience_ns` for each guard. False: a guard is still
// held.
bool hazards_released(const NodeDirectory& directory, uint32_t target_slot, uint32_t from_slot,
                      int64_t patience_ns);

}  // namespace verbena
