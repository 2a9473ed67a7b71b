// SPDX-License-Identifier: BSD-2-Clause
//
// Work queues (ibv_create_wq(3)) and tables of them (ibv_create_rwq_ind_table(3)).
//
// A work queue is the receiving half of a raw packet queue pair that the program does not see: it has the
// same ring, completions, states and death. It counts as a queue pair (max_qp), and its number is a QP
// number.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "engine/objects/context_use.h"

namespace verbena {

struct Qp;

struct Wq {
  Qp* qp = nullptr;
  std::mutex mutex;  // for changes of state
  std::atomic<uint32_t> tables{0};
};

struct RwqTable {
  ContextUse context;
  std::vector<Wq*> queues;  // a power of two
  std::atomic<uint32_t> qps{0};
};

// The state that a work queue has, in the terms of its queue pair's.
ibv_wq_state wq_state_of(ibv_qp_state state);

}  // namespace verbena
