// SPDX-License-Identifier: BSD-2-Clause
#include "engine/memory/sharing.h"

#include <atomic>
#include <cstring>

#include "emulator.h"
#include "engine/objects/process.h"
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
                          .writable = region.writable};
  if (find_shared_file(region.address, region.length, &file) && pass_region(call, file, reply)) return;
  process.memory().not_mappable(process.segment(), query.index, query.mappable);
}

}  // namespace verbena
