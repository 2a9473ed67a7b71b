// SPDX-License-Identifier: BSD-2-Clause
//
// Hazard guards: which thread works on which adapter (hazard pointers, Michael 2004).
// - An initiator publishes a record before it looks at anything of the target that may be freed, and clears
//   the record when it is done.
// - Teardown at the target first makes the object unreachable, then waits until no thread that may have seen
//   the object is still at work (hazards.h).
// The records lie in the node directory, so that a waiter needs no mapping of the initiators' segments.
#pragma once

#include <atomic>
#include <cstdint>

namespace verbena {

inline constexpr uint32_t kHazardsPerSlot = 32;  // threads of one process inside the data path at once

// "A thread of this slot is at work in that adapter." Written by the thread, read by teardown.
struct alignas(64) Hazard {
  std::atomic<uint64_t> target;  // HazardWord; 0: idle
};
static_assert(sizeof(Hazard) == 64);

// Target slot + 1, its complement (16 bits each), whether words are changed in place (1 bit), and a running
// number (31 bits), which distinguishes one guard from the next. A damaged record that is no such word is no
// guard: nothing would ever release it.
struct HazardWord {
  static constexpr uint64_t kChangesWords = 0x8000'0000;  // AtomicsLock (adapter/layout.h)

  static constexpr uint64_t of(uint32_t target_slot, uint64_t number, bool changes_words = false) {
    return key_of(target_slot) << 32 | (changes_words ? kChangesWords : 0) | (number & 0x7fff'ffff);
  }
  static constexpr bool is_to(uint64_t word, uint32_t target_slot) {
    return word >> 32 == key_of(target_slot);
  }
  static constexpr bool is_guard(uint64_t word) { return ((word >> 48 ^ word >> 32) & 0xffff) == 0xffff; }

 private:
  static constexpr uint64_t key_of(uint32_t target_slot) {
    const uint64_t target = uint64_t{target_slot} + 1;
    return target << 16 | (target ^ 0xffff);
  }
};

// The records of one slot (NodeDirectory::hazards()).
struct HazardRecords {
  Hazard* records = nullptr;              // kHazardsPerSlot of them
  std::atomic<uint32_t>* used = nullptr;  // how many of them were ever used: teardown looks at no others
};

// The first kThreadRecords records of a slot belong to threads of its process, one each for the life of the
// thread. The others are for further threads, and for nested guards.
inline constexpr uint32_t kThreadRecords = 24;

struct ThreadRecord {
  static constexpr uint32_t kNotAsked = UINT32_MAX;
  uint32_t index = kNotAsked;  // below kThreadRecords: the calling thread's own
  uint64_t guards = 0;         // so far
};
__attribute__((tls_model("initial-exec"))) inline constinit thread_local ThreadRecord thread_record;

// A hazard guard on the adapter of `target_slot`, from the constructor or begin() to end() or the destructor.
// Everything that is read from the target under the guard is at least as new as any teardown that does not
// wait for the guard.
class HazardGuard {
 public:
  HazardGuard() = default;
  // `own`: the records of the calling thread's process.
  HazardGuard(const HazardRecords& own, uint32_t target_slot) { begin(own, target_slot); }
  ~HazardGuard() { end(); }
  HazardGuard(const HazardGuard&) = delete;
  HazardGuard& operator=(const HazardGuard&) = delete;

  void begin(const HazardRecords& own, uint32_t target_slot) {
    end();
    // Sequentially consistent: the record must be visible before the first look at the target. Teardown
    // orders its own two steps by a fence in the same way (a Dekker race).
    if (announce(own, target_slot))
      std::atomic_thread_fence(std::memory_order_seq_cst);
    else
      begin_slowly(own, target_slot);
  }

  // The same for a caller that is about to take a lock: the guard holds once confirm_after_locking() returns.
  // False: it does not, and the caller must use begin(). `changes_words`: for an atomic, which may then be
  // the processor's own (changes_words()).
  bool announce(const HazardRecords& own, uint32_t target_slot, bool changes_words = false) {
    if (thread_record.index >= kThreadRecords) [[unlikely]]
      return false;
    std::atomic<uint64_t>& record = own.records[thread_record.index].target;
    if (record.load(std::memory_order_relaxed) != 0 ||
        own.used->load(std::memory_order_relaxed) <= thread_record.index) [[unlikely]]
      return false;
    record.store(word_of(target_slot, changes_words), std::memory_order_relaxed);
    record_ = &record;
    target_ = target_slot;
    changes_words_ = changes_words;
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
  // Do those who take the lock for atomics wait for this guard?
  bool changes_words() const { return record_ != nullptr && changes_words_; }

 private:
  static uint64_t word_of(uint32_t target_slot, bool changes_words) {
    return HazardWord::of(target_slot, ++thread_record.guards, changes_words);
  }
  void begin_slowly(const HazardRecords& own, uint32_t target_slot);

  std::atomic<uint64_t>* record_ = nullptr;  // nullptr: no guard
  uint32_t target_ = 0;
  bool changes_words_ = false;
};

}  // namespace verbena
