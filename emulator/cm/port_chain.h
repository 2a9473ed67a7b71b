// SPDX-License-Identifier: BSD-2-Clause
//
// The ids that have ports, chained by bucket (id_table_file.h says how). Any thread of any process, any time;
// nobody waits for anybody.
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

// Everybody in the bucket at one instant, last in first. Returns the head's word of that instant. Takes out
// on the way who is leaving.
uint64_t walk(IdTableFile& file, uint32_t bucket, std::vector<Chained>* all);

// Links an entry of the caller's in, if the head is still `head`: then nobody else has come since. The
// entry's `bucket` is written first, whatever the answer.
bool chain_in(IdTableFile& file, uint32_t bucket, uint32_t index, uint64_t head);

// From here on nobody links in who has seen the bucket before.
void disturb(IdTableFile& file, uint32_t bucket);

// Takes the entry out, or helps; does nothing if its state is no longer `state`. On return it is in no chain,
// in that use. Its `bucket` stays as it is.
void chain_out(IdTableFile& file, uint32_t index, uint64_t state);

}  // namespace verbena::cm
