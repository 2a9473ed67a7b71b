// SPDX-License-Identifier: BSD-2-Clause
//
// Which paths are the boundary's. Pure functions of their arguments: no system call, no allocation, no state,
// and nothing but libc headers, so that they can be called from a signal handler or before main.
//
// The node's tree stands in place of these folders of the machine, whether the machine has them or not:
//   /dev/infiniband
//   every folder under /sys called infiniband or infiniband_*
//   (Documentation/ABI/stable/sysfs-class-infiniband;
//     the class folders, and those that stand under a real adapter's PCI device)
//   …/misc/rdma_cm under /sys  (where librdmacm looks for the connection manager's ABI)
#pragma once

#include <cstddef>

namespace verbena {

// Could `path`, absolute or relative, be one of the boundary's? False for nearly every path of a program;
// true is only a hint. `path` may be null.
bool may_concern_node(const char* path);

enum class Place {
  kElsewhere,  // none of the boundary's; nothing was written
  kNode,       // inside one of the folders above: `out` is where the node has it, if it has it
  kDevice,     // /dev/infiniband/uverbsN; `out` likewise
  kManager,    // /dev/infiniband/rdma_cm; `out` likewise
  kLeft,       // went into one of the folders and by ".." out again: `out` is the path without the detour
  kTooLong,    // ENAMETOOLONG
};

// Judges an absolute path. "//", "." and ".." are understood by their text on the way to the folder, and as
// far as needed to see whether the path leaves it; inside, the kernel resolves the rest of the text itself,
// as
// ".." behind a symbolic link means what the link says. `out` has room for `capacity` bytes, the final zero
// included.
Place judge_path(const char* node, size_t node_length, const char* path, char* out, size_t capacity);

// "uverbs" and a decimal number, nothing else.
bool is_uverbs_name(const char* name);

// That, or "rdma_cm".
bool is_device_name(const char* name);

}  // namespace verbena
