// SPDX-License-Identifier: BSD-2-Clause
//
// A node: the folder through which the processes of one user on one machine find each other. Mode 0700, so
// one uid is one trust domain. It is made by `verbena run` and found through $VERBENA_NODE.
//
//   directory                      node_directory.h
//   key                            of a node with a network: the fabric's key (wire/key.h), mode 0600
//   sys/class/infiniband/…         what the boundary shows in place of the kernel's (device_tree.h)
//   sys/class/infiniband_verbs/…
//   dev/infiniband/…               names only; opening them is the boundary's work
//   slots/<slot>.<generation>/     one folder per living adapter:
//       hand-over                    unix socket: peers get the segment and the memory descriptor there
//       questions                    unix socket: what only this process can do, others ask for there
//       callers unix socket: connections from other nodes, passed on (wire/connection_listener.h) kick FIFO:
//       wakes the service thread c<N> FIFO: completion channel N
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "fabric/device_table.h"

namespace verbena {

inline constexpr const char* kNodeVariable = "VERBENA_NODE";

// Where this user's nodes lie: $XDG_RUNTIME_DIR/verbena when that variable names a folder of this user (under
// sudo it often names somebody else's), else ${TMPDIR:-/tmp}/verbena-<uid>.
std::string nodes_folder();

// Makes `path`, a folder of this user alone, if it is not there. 0, or an errno as ensure_node's, and
// *problem.
int ensure_private_folder(const std::string& path, std::string* problem);

// The folder of the node with these options; `name` keeps nodes with equal options apart ("" = the default).
std::string node_path(const std::string& name, const DeviceTableOptions& options);

// True for names that node_path takes: 1 to 24 letters, digits, '.', '_' or '-', not beginning with '.'.
bool valid_node_name(const std::string& name);

// The longest node path: what lies below it has to fit into PATH_MAX, with room for those who build paths.
inline constexpr size_t kMaxNodePath = 1024;

// Makes the node at `path` if it is not there yet: everything is built beside it and renamed into place, so
// that nobody ever sees half of it and the device folder's mtime (libibverbs' idea of a device's identity)
// never changes. A node that nobody lives on and whose description no longer fits the machine (addresses,
// layout version, key) is made again; one that somebody lives on is used as it is. Safe to call from many
// processes at once. Waits for another maker at most 10 seconds. 0, or an errno, and `*problem` then says
// what was wrong in one line: EPERM, the folder (or the one above) is not a directory of this user with mode
// 0700; EPROTO, made by another version of Verbena and somebody lives there; EBUSY, the same with another
// key; ENAMETOOLONG, above kMaxNodePath; ETIMEDOUT; or what the file system says.
int ensure_node(const std::string& path, const DeviceTableOptions& options, std::string* problem);

// Lives anybody on the node at `path`? In doubt: yes. Not there: no.
bool node_is_inhabited(const std::string& path);

std::string directory_path(const std::string& node);
std::string key_path(const std::string& node);
std::string slot_folder(const std::string& node, uint32_t slot, uint32_t generation);

}  // namespace verbena
