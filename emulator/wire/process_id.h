// SPDX-License-Identifier: BSD-2-Clause
//
// Who a process is, over all nodes and for good: a node's id is drawn again with each making of its
// directory, and a generation of a slot is never given twice. So what is meant for one process never reaches
// another.
#pragma once

#include <compare>
#include <cstdint>

namespace verbena::wire {

struct ProcessId {
  uint64_t node = 0;  // DirectoryHeader::node_id
  uint32_t slot = 0;
  uint32_t generation = 0;  // 0: nobody

  bool somebody() const { return generation != 0; }
  friend auto operator<=>(const ProcessId&, const ProcessId&) = default;
};

}  // namespace verbena::wire
