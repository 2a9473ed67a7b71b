// SPDX-License-Identifier: BSD-2-Clause
//
// The running counters of a queue pair's requests, on the fast path and off it.
#pragma once

#include <atomic>
#include <cstdint>

#include "adapter/traffic.h"
#include "engine/objects/qp.h"
#include "engine/objects/requester_context.h"
#include "engine/rules/psn.h"

namespace verbena {

// By the only writer of the counter.
inline void count_one(std::atomic<uint32_t>& counter) {
  counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

// A message of `length` bytes in `packets` packets has been carried out: advances PSN and counters.
inline void advance(Qp& qp, Passing passing, uint32_t length, uint64_t packets) {
  SharedQp& own = *qp.shared;
  qp.requester.psn = psn_add(qp.requester.psn, packets);
  own.send_psn.store(qp.requester.psn, std::memory_order_relaxed);
  count_passing(own.requests_out, own.bytes_out, own.packets_out, passing, length, packets);
}

}  // namespace verbena
