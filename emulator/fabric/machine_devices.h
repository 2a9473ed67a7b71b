// SPDX-License-Identifier: BSD-2-Clause
//
// The RDMA devices of the machine beside those of the node (`verbena run --beside`): links in the node's
// class folders lead to the kernel's. Programs then list both. What the links lead to is the kernel's
// alone.
#pragma once

#include <string>

namespace verbena {

// Brings the links of the node at `folder` up to date with the devices that the machine has now. Safe to call
// from many processes at once. Returns an errno value.
int show_machine_devices(const std::string& folder);

}  // namespace verbena
