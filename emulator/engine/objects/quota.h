// SPDX-License-Identifier: BSD-2-Clause
//
// How many of its objects a device may have, counted as an adapter counts: over all processes. Each adapter
// (slot) has a count per device and kind in the node directory, which its own process alone changes; what the
// node has is the sum over the slots that are occupied. So nothing has to be repaired when a process dies:
// its counts are not added any more, and are cleared with its slot.
//
// Two processes that reach for the last one in the same instant may both be refused. It is never given twice.
#pragma once

#include <cstdint>
#include <mutex>

#include "fabric/node_directory.h"

namespace verbena {

struct Context;
class Process;

// The limit of a kind, and what refusals call it.
uint64_t limit_of(const DeviceLimits& limits, Counted kind);
const char* name_of(Counted kind);

class Quota {
 public:
  // Takes `amount` of `kind` on `device` for the adapter in `slot`. 0, or ENOMEM when there are not so many
  // left (InfiniBand 1.5, 11.2: "insufficient resources to complete request"; mlx5's firmware status "limits
  // exceeded" is the same errno). Any thread.
  int take(const NodeDirectory& directory, uint32_t slot, uint32_t device, Counted kind, uint64_t amount = 1);
  void give(const NodeDirectory& directory, uint32_t slot, uint32_t device, Counted kind,
            uint64_t amount = 1);

 private:
  std::mutex mutex_;  // threads of one process never refuse each other the last one
};

// For the objects of `context`; `verb` is named in the log when it is refused. Answers as Quota::take, or
// EOPNOTSUPP: the limit is 0, the device does not have such objects at all.
int take_quota(Context& context, Counted kind, const char* verb, uint64_t amount = 1);
// The caller has `from` of `kind` and is to have `to`. Answers as Quota::take, and has then changed nothing.
int change_quota(Context& context, Counted kind, const char* verb, uint64_t from, uint64_t to);
void give_quota(Context& context, Counted kind, uint64_t amount = 1);
// For objects that may outlive the context they were made on.
void give_quota(Process& process, uint32_t device, Counted kind, uint64_t amount = 1);

}  // namespace verbena
