// SPDX-License-Identifier: BSD-2-Clause
//
// The counters of a port as they are now (fabric/hw_counters.h, fabric/pma_counters.h).
#pragma once

#include <string>
#include <string_view>

#include "fabric/hw_counters.h"
#include "fabric/pma_counters.h"
#include "survey/snapshot.h"

namespace verbena {

// Writes the present value into the file at `path`,
// /sys/class/infiniband/<name>/ports/<port>/{hw_counters,counters}/<counter> in the tree of the node. ENOENT:
// that is no such path; or another errno.
int refresh_counter(const std::string& node, std::string_view path);

// Of a port of the device with this index. A process that does not answer counts only with the queue pairs
// that it has destroyed.
HwCounters hw_counters(const NodeSnapshot& node, uint32_t device, uint32_t port);
PmaCounters pma_counters(const NodeSnapshot& node, uint32_t device, uint32_t port);

}  // namespace verbena
