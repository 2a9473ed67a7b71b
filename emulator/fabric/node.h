// SPDX-License-Identifier: BSD-2-Clause
//
// A node: the folder through which the processes of one user on one machine find each other. Mode 0700, so
// one uid is one trust domain. It is made by `verbena run` and found through $VERBENA_NODE.
//
//   directory                      node_directory.h
//   sys/class/infiniband/…         what the boundary shows in place of the kernel's (device_tree.h)
//   sys/class/infiniband_verbs/…
//   dev/infiniband/…               names only; opening them is the boundary's work
//   slots/<slot>.<generation>/     one folder per living adapter:
//       hand-over                    unix socket: peers get the segment and the memory descriptor there
//       kick                         FIFO: wakes the service thread
//       c<N>                         FIFO: completion channel N
#pragma once

#include <cstdint>
#include <string>

#include "fabric/device_table.h"

namespace verbena {

inline constexpr const char* kNodeVariable = "VERBENA_NODE";

// Where this user's nodes lie: $XDG_RUNTIME_DIR/verbena, else ${TMPDIR:-/tmp}/verbena-<uid>.
std::string nodes_folder();

// The folder of the node with these options; `name` keeps nodes with equal options apart ("" = the default).
std::string node_path(const std::string& name, const DeviceTableOptions& options);

// Makes the node at `path` if it is not there yet: everything is built beside it and renamed into place, so
// that nobody ever sees half of it and the device folder's mtime (libibverbs' idea of a device's identity)
// never changes. A node that nobody lives on and whose description no longer fits the machine (addresses,
// layout version) is made anew. Safe to call from many processes at once. errno values; `*problem` then says
// what was wrong in one line.
int ensure_node(const std::string& path, const DeviceTableOptions& options, std::string* problem);

std::string directory_path(const std::string& node);
std::string slot_folder(const std::string& node, uint32_t slot, uint32_t generation);

}  // namespace verbena
