// SPDX-License-Identifier: BSD-2-Clause
//
// The running counters of a queue pair's requests, on the fast path and off it.
#pragma once

#include <atomic>
#include <cstdint>

#include "engine/objects/qp.h"
#include "engine/objects/requester_context.h"
#include "engine/rules/psn.h"

namespace verbena {

// A message of `length` bytes in `packets` packets has been carried out: advances PSN and counters.
inline void advance(Qp& qp, uint32_t length, uint64_t packets) {
  SharedQp& own = *qp.shared;
  qp.requester.psn = psn_add(qp.requester.psn, packets);
  own.send_psn.store(qp.requester.psn, std::memory_order_relaxed);
  own.requests_out.store(own.requests_out.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  own.bytes_out.store(own.bytes_out.load(std::memory_order_relaxed) + length, std::memory_order_relaxed);
}

}  // namespace verbena
