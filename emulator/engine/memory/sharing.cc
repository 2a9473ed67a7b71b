// SPDX-License-Identifier: BSD-2-Clause
#include "engine/memory/sharing.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "adapter/clock.h"
#include "emulator.h"
#include "engine/objects/process.h"
#include "fabric/hazards.h"
#include "fabric/region_passing.h"
#include "fabric/shared_file.h"
#include "observe/log.h"

namespace verbena {
namespace {

std::atomic<SharedMemoryHint> shared_memory_hint{nullptr};

// The memory of a registration, while its keys are valid.
struct Registered {
  uint64_t address, length;
  bool writable;
};

bool find_registered(Process& process, const RegionQuery& query, Registered* out) {
  MemoryObjects& objects = process.memory_objects();
  std::lock_guard lock(objects.mutex);
  const auto found = objects.mrs.find(query.index);
  if (found == objects.mrs.end() || query.mappable == 0) return false;
  if (process.view().mr(query.index)->mappable.load(std::memory_order_relaxed) != query.mappable)
    return false;
  const MemoryTable::Region& region = found->second->region;
  *out = {region.address, region.length, needs_writable_memory(static_cast<int>(region.access))};
  return true;
}

}  // namespace

void set_shared_memory_hint(SharedMemoryHint given) {
  shared_memory_hint.store(given, std::memory_order_release);
}

bool may_be_shared(uint64_t address, uint64_t length) {
  const SharedMemoryHint ask = shared_memory_hint.load(std::memory_order_acquire);
  return ask != nullptr && length != 0 && ask(address, length) && is_file_page(address);
}

bool move_to_heap(Process& process, uint64_t address, uint64_t length) {
  if (length == 0 || !is_shared_heap_allowed()) return false;
  // Peers that reach a region by system call must not meet pages whose writes are held back.
  const auto is_free = [](void* context, const PageRange& range) {
    Process& here = *static_cast<Process*>(context);
    MemoryObjects& objects = here.memory_objects();
    std::lock_guard lock(objects.mutex);
    return std::none_of(objects.mrs.begin(), objects.mrs.end(), [&](const auto& entry) {
      const MemoryTable::Region& region = entry.second->region;
      return region.access != 0 && overlaps(range, region.address, region.length) &&
             here.view().mr(entry.first)->mappable.load(std::memory_order_relaxed) == 0;
    });
  };
  return move_to_shared_heap(address, length, is_free, &process);
}

namespace {

bool end_those_in(Process& process, std::span<const PageRange> ranges) {
  const SegmentView& view = process.view();
  // A word that others can damage.
  const uint32_t used =
      std::min(view.header().mr_high_water.load(std::memory_order_acquire), kMaxMrsPerProcess);
  bool any = false;
  for (uint32_t index = 1; index < used; ++index) {
    const SharedMr* const mr = view.mr(index);
    const uint32_t mappable = mr == nullptr ? 0 : mr->mappable.load(std::memory_order_relaxed);
    const auto is_in = [&](const PageRange& range) { return overlaps(range, mr->address, mr->length); };
    // A region that is not valid is none any more, but a window may be about to be bound.
    if (mappable == 0 ||
        (mr->kind == KeyKind::kRegion && (mr->valid.load(std::memory_order_acquire) & kKeyValid) == 0) ||
        std::none_of(ranges.begin(), ranges.end(), is_in))
      continue;
    process.memory().not_mappable(process.segment(), index, mappable);
    any = true;
  }
  return any;
}

}  // namespace

void end_mappings(Process& process, std::span<const PageRange> ranges) {
  constexpr int64_t kPatience = 20'000'000;  // ns, for a request of a process that is not stopped
  bool any = false;
  // Once more, if there was any: a window may have been bound to it meanwhile (MemoryTable::bind_window()).
  for (int pass = 0; pass < 1 + any; ++pass) any = end_those_in(process, ranges) || any;
  if (!any) return;
  // What peers remember of the regions is out of date.
  process.view().header().mr_epoch.fetch_add(1, std::memory_order_seq_cst);
  process.shared_regions().some_ended();
  process.membership().kick();
  hazards_released(process.directory(), process.membership().slot(), kAnySlot, kPatience);
}

namespace {

// ns. The time from the end of a region to each look at the mappings.
constexpr int64_t kSweeps[] = {1'000'000'000, 5'000'000'000, 25'000'000'000, 125'000'000'000};

std::atomic<int64_t> region_end{0};  // 0: there is nothing to do
std::atomic<size_t> sweeps_done{0};

}  // namespace

void region_ended(Process& process) {
  if (!is_shared_heap_allowed()) return;
  // The service thread sleeps until the next look, which is long after the first.
  const bool is_late = sweeps_done.exchange(0, std::memory_order_relaxed) != 0;
  if (region_end.exchange(now_ns(), std::memory_order_acq_rel) == 0 || is_late) process.membership().kick();
}

void forget_ended_regions() {
  region_end.store(0, std::memory_order_release);
  sweeps_done.store(0, std::memory_order_relaxed);
}

int64_t sweep_heap_when_due() {
  const int64_t end = region_end.load(std::memory_order_acquire);
  if (end == 0) return -1;
  size_t done = sweeps_done.load(std::memory_order_relaxed);
  const int64_t now = now_ns();
  if (now - end >= kSweeps[done]) {
    try {
      sweep_shared_heap();
    } catch (const std::bad_alloc&) {  // perhaps the next time
    }
    done = sweeps_done.compare_exchange_strong(done, done + 1, std::memory_order_relaxed) ? done + 1 : 0;
  }
  if (done < std::size(kSweeps)) return std::max<int64_t>(end + kSweeps[done] - now, 0);
  sweeps_done.store(0, std::memory_order_relaxed);
  int64_t same = end;
  region_end.compare_exchange_strong(same, 0, std::memory_order_acq_rel);
  return same == end ? -1 : kSweeps[0];
}

void pass_region(Process& process, ServiceCall& call) {
  RegionQuery query;
  Registered region;
  if (call.message.size() != sizeof query) return;
  std::memcpy(&query, call.message.data(), sizeof query);
  // Before the key is looked at: if it becomes invalid from here on, the peer is woken.
  if (!process.shared_regions().asked(query.index, query.slot, query.generation)) return;
  SharedFile file;
  if (!find_registered(process, query, &region)) return;
  const RegionReply reply{.device = 0,
                          .inode = 0,
                          .offset = 0,
                          .address = region.address,
                          .length = region.length,
                          .alignment = 0,
                          .writable = region.writable,
                          .segment = 0};
  process.view().header().may_be_mapped.store(1, std::memory_order_seq_cst);
  if (find_shared_file(region.address, region.length, &file) && pass_region(call, file, reply)) return;
  process.memory().not_mappable(process.segment(), query.index, query.mappable);
}

}  // namespace verbena
