// SPDX-License-Identifier: BSD-2-Clause
//
// The program's flow rules and counters: the process-private half of what is in the node's table
// (fabric/flow_table.h).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <mutex>
#include <vector>

#include "engine/objects/context_use.h"
#include "fabric/flow_table.h"

namespace verbena {

struct Counters;
struct Qp;

struct SteeredFlow {
  ContextUse context;
  Qp* qp = nullptr;
  FlowTable::Handle handle;
  Counters* counters = nullptr;  // or none
};

struct Counters {
  struct Point {
    ibv_counter_description what;
    uint32_t index;
  };
  ContextUse context;
  std::mutex mutex;
  std::vector<Point> points;
  std::vector<const SteeredFlow*> flows;  // that count with it now
  FlowTable::Counts gone;                 // of those that were destroyed
};

// What all flows of the counters have counted. The caller holds the mutex.
FlowTable::Counts sum_of(const Counters& counters);

// The flow counts with its counters from now on, or no longer.
void bind_counters(SteeredFlow& flow);
void unbind_counters(SteeredFlow& flow);

}  // namespace verbena
