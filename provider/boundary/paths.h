// SPDX-License-Identifier: BSD-2-Clause
//
// The paths that the boundary redirects. These are pure functions without system calls, allocation or state.
// They use nothing but libc's headers, so they may be called in a signal handler and before main.
//
// The node's tree replaces these folders of the machine, whether the machine has them or not:
// - /dev/infiniband
// - each folder under /sys with the name infiniband or infiniband_*: the class folders, and the folders below
//   the PCI device of a real adapter (Documentation/ABI/stable/sysfs-class-infiniband)
// - each folder …/misc/rdma_cm under /sys, where librdmacm reads the ABI version of the connection manager
#pragma once

#include <cstddef>

namespace verbena {

// Might the boundary redirect `path`, which may be absolute, relative or null? False is certain, and the
// result for nearly every path of a program. True is only a hint.
bool may_concern_node(const char* path);

enum class Place {
  kElsewhere,  // not redirected; nothing is written
  kNode,       // in one of the folders above; `out` is the path in the node's tree, which need not exist
  kDevice,     // /dev/infiniband/uverbsN; `out` as for kNode
  kManager,    // /dev/infiniband/rdma_cm; `out` as for kNode
  kLeft,       // enters one of the folders and leaves it by ".."; `out` is the path without this detour
  kTooLong,    // ENAMETOOLONG
};

// Classifies an absolute path. `capacity` is the number of bytes at `out`, including the final zero.
//
// Up to the replaced folder, "//", "." and ".." are resolved textually. Behind it they are looked at only
// to find out whether the path leaves the folder: the kernel resolves them, because ".." after a symbolic
// link depends on the link.
Place judge_path(const char* node, size_t node_length, const char* path, char* out, size_t capacity);

// Might this be the path of a counter of a port, …/hw_counters/NAME or …/counters/NAME? `path` is one that
// judge_path() has written.
bool is_counter(const char* path);

// Is this "uverbs" and a decimal number, and nothing else?
bool is_uverbs_name(const char* name);

// Is this the name of a device file: is_uverbs_name(), or "rdma_cm"?
bool is_device_name(const char* name);

}  // namespace verbena
