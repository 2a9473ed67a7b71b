// SPDX-License-Identifier: BSD-2-Clause
//
// The memory of destroyed objects is kept, so that a later use of one leads to the checker and not into
// something else.
#pragma once

namespace verbena::check {

// While one lives, free(3) of the block with `handle` in this thread does nothing.
class KeepingMemory {
 public:
  explicit KeepingMemory(const void* handle);
  ~KeepingMemory();
  KeepingMemory(const KeepingMemory&) = delete;
  KeepingMemory& operator=(const KeepingMemory&) = delete;

 private:
  const void* before_;
};

// For free(3): does the block at `memory` have to stay?
bool must_keep(const void* memory);

}  // namespace verbena::check
