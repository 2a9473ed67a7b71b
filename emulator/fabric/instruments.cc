// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/instruments.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>

#include "fabric/kick.h"
#include "fabric/node_directory.h"
#include "fabric/process_identity.h"
#include "fabric/slot_folder.h"

namespace verbena {
namespace {

constexpr uint64_t kLasting = UINT64_MAX;  // InstrumentEntry::holder

bool lives(uint64_t holder) { return holder == kLasting || (holder != 0 && process_lives(holder)); }

void kick_processes(const NodeDirectory& directory, const std::string& node) {
  for (uint32_t i = 0; i < kMaxSlots; ++i)
    kick_slot(directory, node, i, directory.slot(i).generation.load(std::memory_order_acquire));
}

int add(const NodeDirectory& directory, const std::string& node, uint64_t holder, const RecordWish& wish,
        uint32_t* index) {
  for (uint32_t i = 0; i < kMaxInstruments; ++i) {
    InstrumentEntry& entry = directory.header().instruments[i];
    uint64_t before = entry.holder.load(std::memory_order_acquire);
    if (lives(before)) continue;
    if (!entry.holder.compare_exchange_strong(before, holder, std::memory_order_acq_rel)) continue;
    entry.wish.store(wish.pack(), std::memory_order_release);
    *index = i;
    kick_processes(directory, node);
    return 0;
  }
  return ENOSPC;
}

InstrumentEntry* find_lasting(const NodeDirectory& directory) {
  for (InstrumentEntry& entry : directory.header().instruments)
    if (entry.holder.load(std::memory_order_acquire) == kLasting) return &entry;
  return nullptr;
}

}  // namespace

int add_instrument(const NodeDirectory& directory, const std::string& node, const RecordWish& wish,
                   uint32_t* index) {
  return add(directory, node, identity_of_process(getpid()), wish, index);
}

int set_lasting_instrument(const NodeDirectory& directory, const std::string& node, const RecordWish& wish) {
  InstrumentEntry* const entry = find_lasting(directory);
  if (entry == nullptr) {
    uint32_t index = 0;
    return wish.classes == 0 ? 0 : add(directory, node, kLasting, wish, &index);
  }
  entry->wish.store(wish.pack(), std::memory_order_release);
  if (wish.classes == 0) entry->holder.store(0, std::memory_order_release);
  kick_processes(directory, node);
  return 0;
}

bool has_lasting_instrument(const NodeDirectory& directory) { return find_lasting(directory) != nullptr; }

void remove_instrument(const NodeDirectory& directory, const std::string& node, uint32_t index) {
  InstrumentEntry& entry = directory.header().instruments[index % kMaxInstruments];
  entry.wish.store(0, std::memory_order_release);
  entry.holder.store(0, std::memory_order_release);
  kick_processes(directory, node);
}

RecordWish find_record_wish(const NodeDirectory& directory) {
  RecordWish sum;
  for (const InstrumentEntry& entry : directory.header().instruments) {
    const uint64_t holder = entry.holder.load(std::memory_order_acquire);
    if (!lives(holder)) continue;
    const auto wish = RecordWish::unpack(entry.wish.load(std::memory_order_acquire));
    sum.classes |= wish.classes;
    sum.snap = std::max(sum.snap, wish.snap);
    sum.ring_mib = std::max(sum.ring_mib, wish.ring_mib);
  }
  return sum;
}

uint32_t count_instruments(const NodeDirectory& directory) {
  return static_cast<uint32_t>(std::ranges::count_if(directory.header().instruments, [](const auto& entry) {
    const uint64_t holder = entry.holder.load(std::memory_order_acquire);
    return lives(holder);
  }));
}

std::string records_folder(const std::string& node) { return node + "/records"; }

std::string record_path(const std::string& node, uint32_t slot, uint32_t generation) {
  return records_folder(node) + "/" + slot_name(slot, generation);
}

}  // namespace verbena
