// SPDX-License-Identifier: BSD-2-Clause
//
// The number of objects that a device may have, counted as an adapter counts: over all processes. The node
// directory has one count per slot (adapter), device and kind. Only the slot's own process changes that
// count, and its forked children (device memory). The node's total is the sum over the occupied slots. So a
// dead process leaves nothing to repair: its counts are no longer added, and are cleared with its slot.
//
// Two processes that take the last object at the same instant may both be refused. It is never given twice.
#pragma once

#include <cstdint>
#include <mutex>

#include "fabric/node_directory.h"

namespace verbena {

struct Context;
class Process;

// The limit of a kind, and its name in refusals.
uint64_t limit_of(const DeviceLimits& limits, Counted kind);
const char* name_of(Counted kind);

class Quota {
 public:
  // Takes `amount` of `kind` on `device` for the adapter in `slot`. 0, or ENOMEM when fewer are left
  // (InfiniBand 1.5, 11.2: "insufficient resources to complete request"; mlx5's firmware status "limits
  // exceeded" has the same errno). Any thread.
  int take(const NodeDirectory& directory, uint32_t slot, uint32_t device, Counted kind, uint64_t amount = 1);
  void give(const NodeDirectory& directory, uint32_t slot, uint32_t device, Counted kind,
            uint64_t amount = 1);

  // The same for a forked child of the slot's process: a thread of the parent may have held the lock at the
  // fork. Two processes that take the last at the same instant may both be refused.
  static int take_unlocked(const NodeDirectory& directory, uint32_t slot, uint32_t device, Counted kind,
                           uint64_t amount);

 private:
  std::mutex mutex_;  // threads of one process never refuse each other the last one
};

// For the objects of `context`. The log names `verb` in a refusal. Returns as Quota::take, or EOPNOTSUPP: the
// limit is 0, so the device has no such objects.
int take_quota(Context& context, Counted kind, const char* verb, uint64_t amount = 1);
// Changes the caller's count of `kind` from `from` to `to`. Returns as Quota::take. A refusal changes
// nothing.
int change_quota(Context& context, Counted kind, const char* verb, uint64_t from, uint64_t to);
void give_quota(Context& context, Counted kind, uint64_t amount = 1);
// For objects that may outlive the context that made them.
void give_quota(Process& process, uint32_t device, Counted kind, uint64_t amount = 1);

}  // namespace verbena
