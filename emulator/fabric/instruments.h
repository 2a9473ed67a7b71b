// SPDX-License-Identifier: BSD-2-Clause
//
// Instruments that watch the processes of a node from outside (`verbena capture`). Each has an entry in the
// node directory, which says what the processes write down for it (record/record_ring.h). A process looks
// when it joins the node, when it is kicked, and every second while it records. An instrument that dies needs
// no clearing: its entry counts no more.
#pragma once

#include <cstdint>
#include <string>

#include "fabric/instrument_entry.h"

namespace verbena {

class NodeDirectory;

enum RecordClass : uint8_t {
  kRecordPackets = 1,   // what packets are made of, with their payload
  kRecordTimeline = 2,  // what happens, and when
};

struct RecordWish {
  static constexpr uint32_t kWhole = 0xffffff;

  uint8_t classes = 0;    // RecordClass; 0: nothing is recorded
  uint32_t snap = 0;      // most bytes of payload of a packet, 24 bits; kWhole: all
  uint16_t ring_mib = 0;  // of each process, a power of two

  static constexpr RecordWish unpack(uint64_t word) {
    return {static_cast<uint8_t>(word), static_cast<uint32_t>(word >> 8) & kWhole,
            static_cast<uint16_t>(word >> 32)};
  }
  constexpr uint64_t pack() const {
    return uint64_t{classes} | uint64_t{snap & kWhole} << 8 | uint64_t{ring_mib} << 32;
  }
};

// Adds an instrument of this process and kicks the processes of the node. `node`: its path. *index: the
// entry. ENOSPC: there are kMaxInstruments.
int add_instrument(const NodeDirectory& directory, const std::string& node, const RecordWish& wish,
                   uint32_t* index);
void remove_instrument(const NodeDirectory& directory, const std::string& node, uint32_t index);

// The instrument that has no process, and stays until it is ended, as the node does meanwhile. Another wish
// replaces that which it has; an empty one ends it. ENOSPC.
int set_lasting_instrument(const NodeDirectory& directory, const std::string& node, const RecordWish& wish);
bool has_lasting_instrument(const NodeDirectory& directory);

// What the living instruments want together. Looks into /proc if there are any.
RecordWish find_record_wish(const NodeDirectory& directory);

// The number of living instruments.
uint32_t count_instruments(const NodeDirectory& directory);

// The folder of the processes' rings, and the ring of one.
std::string records_folder(const std::string& node);
std::string record_path(const std::string& node, uint32_t slot, uint32_t generation);

}  // namespace verbena
