// SPDX-License-Identifier: BSD-2-Clause
//
// The paths that the boundary redirects. Pure functions: no system call, no allocation, no state, and no
// headers but libc's, so that they may be called in a signal handler and before main.
//
// The node's tree replaces these folders of the machine, whether the machine has them or not:
// - /dev/infiniband
// - every folder under /sys called infiniband or infiniband_*: the class folders, and those below a real
//   adapter's PCI device (Documentation/ABI/stable/sysfs-class-infiniband)
// - …/misc/rdma_cm under /sys, where librdmacm looks for the connection manager's ABI
#pragma once

#include <cstddef>

namespace verbena {

// May `path`, absolute or relative, be one that the boundary redirects? False for nearly every path of a
// program. True is only a hint. `path` may be null.
bool may_concern_node(const char* path);

enum class Place {
  kElsewhere,  // not redirected; nothing is written
  kNode,       // in one of the folders above: `out` is the path in the node's tree, which may not exist
  kDevice,     // /dev/infiniband/uverbsN; `out` likewise
  kManager,    // /dev/infiniband/rdma_cm; `out` likewise
  kLeft,       // enters one of the folders and leaves it by "..": `out` is the path without this detour
  kTooLong,    // ENAMETOOLONG
};

// Classifies an absolute path. "//", "." and ".." are resolved textually up to the folder, and further only
// to see whether the path leaves it. The kernel resolves the part inside the folder, because ".." after a
// symbolic link depends on the link. `capacity`: bytes at `out`, including the final zero.
Place judge_path(const char* node, size_t node_length, const char* path, char* out, size_t capacity);

// "uverbs" and a decimal number, nothing else.
bool is_uverbs_name(const char* name);

// is_uverbs_name(), or "rdma_cm".
bool is_device_name(const char* name);

}  // namespace verbena
