// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/hazards.h"

#include <sched.h>

#include "adapter/clock.h"

namespace verbena {
namespace {

// The first records that belong to a thread of this process, whatever slot the process holds.
std::atomic<bool> taken[kThreadRecords];

// Threads begin their search for a further record at different places, so that each usually finds a free one.
std::atomic<uint32_t> next_hint{0};
__attribute__((tls_model("initial-exec"))) constinit thread_local uint32_t hint = 0;

// Returns the thread's record when the thread ends.
struct Holder {
  ~Holder() {
    const uint32_t index = thread_record.index;
    thread_record.index = kThreadRecords;  // none any more
    if (index < kThreadRecords) taken[index].store(false, std::memory_order_release);
  }
};

// Takes a record for the calling thread, if one is left.
void ask_for_record() {
  hint = next_hint.fetch_add(1, std::memory_order_relaxed);
  thread_record.index = kThreadRecords;
  for (uint32_t i = 0; i < kThreadRecords; ++i) {
    if (taken[i].load(std::memory_order_relaxed) || taken[i].exchange(true, std::memory_order_acquire))
      continue;
    thread_local Holder holder;
    static_cast<void>(&holder);
    thread_record.index = i;
    return;
  }
}

// Calls wait(slot, is_over) for each hazard guard on `target_slot` that has the bits of `kind`, is held and
// is not released within some spins. Stops and returns false when `wait` does.
template <typename Wait>
bool for_each_hazard(const NodeDirectory& directory, uint32_t target_slot, uint32_t from_slot, Wait&& wait,
                     uint64_t kind = 0) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const uint32_t first = from_slot < kMaxSlots ? from_slot : 0;
  const uint32_t end = from_slot < kMaxSlots ? from_slot + 1 : kMaxSlots;
  for (uint32_t s = first; s < end; ++s) {
    Slot& slot = directory.slot(s);
    const uint32_t used = slot.hazards_used.load(std::memory_order_acquire);
    const uint32_t generation = slot.generation.load(std::memory_order_acquire);
    for (uint32_t i = 0; i < used && i < kHazardsPerSlot; ++i) {
      std::atomic<uint64_t>& record = directory.hazard(s, i).target;
      const uint64_t seen = record.load(std::memory_order_seq_cst);
      if (!HazardWord::is_to(seen, target_slot) || (seen & kind) != kind) continue;
      const auto is_over = [&] {
        for (int spins = 0; spins < 100; ++spins)
          if (record.load(std::memory_order_acquire) != seen) return true;
        return !directory.alive(s, generation);
      };
      if (!is_over() && !wait(slot, is_over)) return false;
    }
  }
  return true;
}

void note_use(std::atomic<uint32_t>& ever_used, uint32_t index) {
  uint32_t used = ever_used.load(std::memory_order_relaxed);
  while (used <= index && !ever_used.compare_exchange_weak(used, index + 1)) {
  }
}

}  // namespace

void HazardGuard::begin_slowly(const HazardRecords& own, uint32_t target_slot) {
  if (thread_record.index == ThreadRecord::kNotAsked) ask_for_record();
  const uint64_t word = word_of(target_slot, false);
  for (uint32_t tries = 0;; ++tries) {
    const uint32_t index = tries == 0 && thread_record.index < kThreadRecords
                               ? thread_record.index
                               : kThreadRecords + hint % (kHazardsPerSlot - kThreadRecords);
    std::atomic<uint64_t>& record = own.records[index].target;
    uint64_t idle = 0;
    // Sequentially consistent, as in begin().
    if (record.compare_exchange_strong(idle, word, std::memory_order_seq_cst)) {
      if (own.used->load(std::memory_order_relaxed) <= index) {
        note_use(*own.used, index);
        std::atomic_thread_fence(std::memory_order_seq_cst);
      }
      record_ = &record;
      target_ = target_slot;
      changes_words_ = false;
      return;
    }
    ++hint;
    if (tries >= kHazardsPerSlot) sched_yield();
  }
}

void wait_for_hazards(const NodeDirectory& directory, uint32_t target_slot, uint32_t from_slot,
                      void (*on_stall)(void* context, int32_t pid), void* context) {
  for_each_hazard(directory, target_slot, from_slot, [&](Slot& slot, auto&& is_over) {
    const int64_t began = now_ns();
    for (bool told = false; !is_over();) {
      sched_yield();
      if (told || now_ns() - began < 1'000'000'000) continue;
      told = true;
      if (on_stall != nullptr) on_stall(context, slot.pid.load(std::memory_order_relaxed));
    }
    return true;
  });
}

namespace {

bool released(const NodeDirectory& directory, uint32_t target_slot, uint32_t from_slot, int64_t patience_ns,
              uint64_t kind) {
  const auto wait = [&](Slot&, auto&& is_over) {
    const int64_t began = now_ns();
    while (!is_over()) {
      if (now_ns() - began > patience_ns) return false;
      sched_yield();
    }
    return true;
  };
  return for_each_hazard(directory, target_slot, from_slot, wait, kind);
}

}  // namespace

bool hazards_released(const NodeDirectory& directory, uint32_t target_slot, uint32_t from_slot,
                      int64_t patience_ns) {
  return released(directory, target_slot, from_slot, patience_ns, 0);
}

bool word_changes_released(const NodeDirectory& directory, uint32_t target_slot, int64_t patience_ns) {
  return released(directory, target_slot, kAnySlot, patience_ns, HazardWord::kChangesWords);
}

void wait_for_hazards_of(const NodeDirectory& directory, uint32_t own_slot) {
  const uint32_t used = directory.slot(own_slot).hazards_used.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < used && i < kHazardsPerSlot; ++i) {
    std::atomic<uint64_t>& record = directory.hazard(own_slot, i).target;
    const uint64_t seen = record.load(std::memory_order_seq_cst);
    while (HazardWord::is_guard(seen) && record.load(std::memory_order_acquire) == seen) sched_yield();
  }
}

}  // namespace verbena
