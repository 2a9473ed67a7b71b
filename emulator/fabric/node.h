// SPDX-License-Identifier: BSD-2-Clause
//
// A node: the folder through which the processes of one user on one machine find each other. Its mode is
// 0700, so that one uid is one trust domain (private_folder.h). `verbena run` creates it; processes find it
// through $VERBENA_NODE.
//
//   directory                      node_directory.h
//   cm-ids                         cm/id_table_file.h, once a process uses rdma_cm
//   key                            only with a network: the fabric's key (wire/key.h), mode 0600
//   sys/class/infiniband/…         shown by the boundary in place of the kernel's (device_tree.h)
//   sys/class/infiniband_verbs/…
//   dev/infiniband/…               names only; the boundary handles their opening
//   slots/<slot>.<generation>/     one folder per living adapter:
//       service                      unix socket: what other processes ask for (service_socket.h)
//       kick                         FIFO: wakes the service thread
//       c<N>, a<N>                   FIFOs: completion channel N, asynchronous events of context N
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fabric/device_table.h"
#include "fabric/slot_address.h"

namespace verbena {

inline constexpr const char* kNodeVariable = "VERBENA_NODE";

// The folder of this user's nodes: $XDG_RUNTIME_DIR/verbena when that variable names a folder of this user
// (under sudo it often names another user's), else ${TMPDIR:-/tmp}/verbena-<uid>. If something that is not a
// folder of this user alone has that name: verbena-<uid>.1, or the next free one.
std::string nodes_folder();

// That folder, and the others that this user's nodes may be in: those of another XDG_RUNTIME_DIR or TMPDIR
// (/run/user/<uid>, /tmp, /var/tmp, /dev/shm). The ones that exist.
std::vector<std::string> all_nodes_folders();

// The folder of the node with these options; `name` keeps nodes with equal options apart ("" = the default).
std::string node_path(const std::string& name, const DeviceTableOptions& options);

// True for names that node_path takes: 1 to 24 letters, digits, '.', '_' or '-', not beginning with '.'.
bool valid_node_name(const std::string& name);

// The longest node path. Paths below it must fit into PATH_MAX, with a margin for programs that append to
// them.
inline constexpr size_t kMaxNodePath = 1024;

// Creates the node at `path` unless it exists. Everything is built beside it and renamed into place: no
// process ever sees an incomplete node, and the device folder's mtime (libibverbs' idea of a device's
// identity) never changes. Safe to call from many processes at once. Waits at most 10 seconds for others.
// From then on the node stays while process `holder` lives (node_holders.h); without members and holders it
// goes (node_removal.h). Other nodes in the same folder that nobody uses are removed.
//
// An existing node whose description no longer fits the machine (addresses, layout version, key):
// - without a member process, it is built again,
// - with a member process, it is used as it is. What a cleaner of old files has deleted of it is made again.
//
// 0, or an errno, and *problem says in one line what is wrong:
// - EPERM: the folder (or its parent) is not a directory of this user with mode 0700.
// - EPROTO: another version of Verbena created the node, and it has members.
// - EBUSY: the same with another key.
// - ENAMETOOLONG: longer than kMaxNodePath.
// - ETIMEDOUT, or an error of the file system.
int ensure_node(const std::string& path, const DeviceTableOptions& options, std::string* problem,
                pid_t holder = getpid());

// True: a process is a member of the node at `path`. In doubt: true. No such node: false.
bool node_is_inhabited(const std::string& path);

std::string directory_path(const std::string& node);
std::string key_path(const std::string& node);

}  // namespace verbena
