// SPDX-License-Identifier: BSD-2-Clause
//
// The layout of the id table (id_table.h) in shared memory: the file <node>/cm-ids. Zeros are an empty table.
//
// Who writes what:
// - An entry: the process whose slot its state names. Its states are free -> claimed -> live -> free, each
//   step one compare-and-swap on the state word, which counts the uses. The rest is written while it is
//   claimed or live. Any process may free the entries of owners that have died.
// - The facts of an id: two copies in its entry. The owner writes the unused copy and then makes it the used
//   one. A reader always finds one complete copy, wherever the owner may have been stopped.
// - Buckets: the ids with a port, chained by port space and port, as in Michael's lists ("High Performance
//   Dynamic Lock-Free Hash Tables and List-Based Sets", SPAA 2002). A new id is linked in at the head only,
//   so that the head's word changes with every binding: "no conflict, then link in" is one compare-and-swap.
//   To leave, the entry's own link is marked, and any process that meets the entry takes it out. It may be
//   used again only after a whole walk has not met it. Every link has a tag that counts its changes and is
//   never reset.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "adapter/layout.h"
#include "cm/id_table.h"
#include "fabric/kept_descriptor.h"

namespace verbena::cm {

inline constexpr uint32_t kIdTableMagic = 0x53'44'49'43;               // "CIDS"
inline constexpr uint32_t kIdTableVersion = kLayoutVersion << 16 | 1;  // low half: this file's
inline constexpr uint32_t kPortBuckets = 32768;

enum class EntryPhase : uint8_t { kFree = 0, kClaimed = 1, kLive = 2 };

struct EntryState {
  uint16_t use;         // counts the claims of this entry; 0: never claimed
  uint32_t generation;  // the low 24 bits of the owner's
  uint32_t slot;        // 16 bits
  EntryPhase phase;
  static constexpr EntryState unpack(uint64_t w) {
    return {static_cast<uint16_t>(w >> 48), static_cast<uint32_t>(w >> 24) & 0xffffff,
            static_cast<uint32_t>(w >> 8) & 0xffff, static_cast<EntryPhase>(w & 0xff)};
  }
  constexpr uint64_t pack() const {
    return uint64_t{use} << 48 | uint64_t{generation & 0xffffff} << 24 | uint64_t{slot & 0xffff} << 8 |
           static_cast<uint64_t>(phase);
  }
};

struct Link {
  uint64_t tag;   // 43 bits
  bool leaving;   // of the entry that this link lies in
  uint32_t next;  // index + 1 of the next entry, 20 bits; 0: the end
  static constexpr Link unpack(uint64_t w) {
    return {w >> 21, (w >> 20 & 1) != 0, static_cast<uint32_t>(w & 0xfffff)};
  }
  constexpr uint64_t pack() const { return tag << 21 | uint64_t{leaving} << 20 | (next & 0xfffff); }
};
static_assert(kMaxNodeIds < 0xfffff);

inline constexpr size_t kFactsWords = sizeof(IdFacts) / sizeof(uint64_t);
static_assert(sizeof(IdFacts) % sizeof(uint64_t) == 0);

struct alignas(64) IdEntry {
  std::atomic<uint64_t> link;    // Link
  // 1 + the bucket whose chain the entry is in, is about to enter, or may not have left yet; 0: none
  std::atomic<uint32_t> bucket;
  std::atomic<uint32_t> epoch;   // facts[epoch % 2] is in use
  std::atomic<uint32_t> backlog;
  std::atomic<uint32_t> groups;  // joined so far; 0: no search needed
  uint64_t reserved;
  std::atomic<uint64_t> facts[2][kFactsWords];
};
static_assert(sizeof(IdEntry) == 256);

struct GroupEntry {
  std::atomic<uint64_t> gid[2];
  std::atomic<uint32_t> id_index;
  std::atomic<uint32_t> id_use;
  std::atomic<uint32_t> send_only;
  uint32_t reserved;
};
static_assert(sizeof(GroupEntry) == 32);

struct IdTableFile {
  std::atomic<uint32_t> magic;  // written last
  uint32_t version;
  uint64_t size;
  uint64_t node_id;             // DirectoryHeader's
  // where the search for a free entry begins, so that uses are spread
  alignas(64) std::atomic<uint32_t> next_id;
  std::atomic<uint32_t> groups_used;  // entries ever used
  std::atomic<uint32_t> last_port;    // chosen last; not chosen twice in a row
  alignas(4096) std::atomic<uint64_t> id_states[kMaxNodeIds];
  std::atomic<uint64_t> group_states[kMaxNodeGroups];
  std::atomic<uint64_t> buckets[kPortBuckets];  // Link
  IdEntry ids[kMaxNodeIds];
  GroupEntry groups[kMaxNodeGroups];
};

// Maps <node>/cm-ids; creates it if it does not exist, unless `only_if_there`. Errors as IdTable::open().
// ETIMEDOUT: another process has been creating it for 10 seconds.
// *kept: the file, by which others find it if it loses its name.
int map_id_table(const std::string& node, uint64_t node_id, bool only_if_there, IdTableFile** out,
                 KeptDescriptor* kept = nullptr);
void unmap_id_table(IdTableFile* file);

// ---- contents of an entry ---------------------------------------------------------------------------------

// The owner that an entry's state names. False: it is gone.
bool living_owner(const NodeDirectory& directory, const EntryState& state, Owner* owner);

// For the owner only, one thread at a time.
void write_facts(IdEntry& entry, const IdFacts& facts);
IdFacts read_facts(const IdEntry& entry);

}  // namespace verbena::cm
