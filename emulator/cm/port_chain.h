// SPDX-License-Identifier: BSD-2-Clause
//
// The ids with ports, chained by bucket (id_table_file.h describes the chains). Any thread of any process,
// any time. Lock-free: no process waits for another.
#pragma once

#include <cstdint>
#include <vector>

#include "cm/id_table_file.h"

namespace verbena::cm {

uint32_t bucket_of(PortSpace space, uint16_t port);

struct Chained {
  uint32_t index;
  uint64_t state;  // EntryState when it was seen
  IdFacts facts;
};

// All entries of the bucket at one instant, the last one linked in first. Returns the head's word of that
// instant. Takes leaving entries out on the way.
uint64_t walk(IdTableFile& file, uint32_t bucket, std::vector<Chained>* all);

// Links an entry of the caller in if the head is still `head`: then no other entry has been linked in since.
// The entry's `bucket` is written first, whatever the result.
bool chain_in(IdTableFile& file, uint32_t bucket, uint32_t index, uint64_t head);

// From here on, a process that has walked the bucket before cannot link in.
void disturb(IdTableFile& file, uint32_t bucket);

// Takes the entry out, or helps with that. Does nothing if its state is no longer `state`. On return the
// entry is in no chain in that use. Its `bucket` does not change.
void chain_out(IdTableFile& file, uint32_t index, uint64_t state);

}  // namespace verbena::cm
