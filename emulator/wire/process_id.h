// SPDX-License-Identifier: BSD-2-Clause
//
// The identity of a process over all nodes and for all time. A node's id is random for each creation of its
// directory, and a generation of a slot is never used twice. A message for one process therefore never
// reaches another.
#pragma once

#include <compare>
#include <cstdint>

namespace verbena::wire {

struct ProcessId {
  uint64_t node = 0;  // DirectoryHeader::node_id
  uint32_t slot = 0;
  uint32_t generation = 0;  // 0: no process

  bool somebody() const { return generation != 0; }
  friend auto operator<=>(const ProcessId&, const ProcessId&) = default;
};

}  // namespace verbena::wire
