// SPDX-License-Identifier: BSD-2-Clause
//
// Counts at once at a queue pair's port: an event (hw_counters.h), or what passes the port (traffic.h).
// Any thread of any process, off the data path.
#pragma once

#include <atomic>

#include "adapter/layout.h"
#include "adapter/traffic.h"
#include "fabric/hw_counters.h"
#include "fabric/node_directory.h"

namespace verbena {

// `qp` may be a peer's. `counter` is below kPastCounters.
inline void count_event(const NodeDirectory& directory, const SharedQp& qp, HwCounter counter) {
  const QpPath path = QpPath::unpack(qp.path.load(std::memory_order_relaxed));
  directory.header().past_counters[port_place(qp.device, path.port)][static_cast<size_t>(counter)].fetch_add(
      1, std::memory_order_relaxed);
}

inline void count_at_port(const NodeDirectory& directory, const SharedQp& qp, PortCount count,
                          uint64_t value = 1) {
  const QpPath path = QpPath::unpack(qp.path.load(std::memory_order_relaxed));
  if (value != 0)
    directory.header().port_counts[port_place(qp.device, path.port)][static_cast<size_t>(count)].fetch_add(
        value, std::memory_order_relaxed);
}

}  // namespace verbena
