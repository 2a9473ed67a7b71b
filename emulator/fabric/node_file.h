// SPDX-License-Identifier: BSD-2-Clause
//
// The files of a node that its processes map. A cleaner of old files (systemd-tmpfiles, tmpreaper) may delete
// them while the node lives. Its processes keep them open, and a new process opens them through theirs: by
// /proc/<pid>/fd (proc(5)), which needs no help of the other process and so works while that is stopped.
#pragma once

#include <string>

#include "fabric/descriptor.h"

namespace verbena {

// Opens the file at `path` (absolute), in a folder of this user alone, for reading and writing. If it, or its
// folder, does not exist: the deleted file of that name which a process of this user has open. Looks at
// processes of this pid namespace and mount namespace.
// 0; ENOENT: neither; EPERM: the folder is not this user's alone; or the errno of openat(2).
int open_node_file(const std::string& path, Descriptor* file);

// True: the file still has the name `path`.
bool has_name(int file, const std::string& path);

}  // namespace verbena
