// SPDX-License-Identifier: BSD-2-Clause
//
// The fabric's key: 32 random bytes, shared by all its nodes. A key file holds them as 64 hexadecimal digits
// and a line feed. A user that can read the file can join the fabric, so the file has mode 0600.
#pragma once

#include <string>

#include "fabric/device_table.h"

namespace verbena::wire {

// Creates the file, which must not exist, with a new key. 0 or errno, and *problem in one line. EEXIST.
int make_key(const std::string& path, std::string* problem);

// Reads the file.
// - EPERM: it is not this user's, or others can read it. (A file of root may be readable through one of this
//   user's groups, because secrets are mounted into a container like that.)
// - EINVAL: it does not hold a key.
// - Other errno: of open(2) and read(2).
int read_key(const std::string& path, NetworkKey* out, std::string* problem);

// The user's own key, <folder>/key, created if it does not exist. All nodes of a user on a machine have it,
// unless they are given another one. The folder must exist. Safe to call from many processes at once.
int user_key(const std::string& folder, NetworkKey* out, std::string* problem);

// The key of a node (fabric/node.h: key_path), whose file holds the 32 bytes themselves. errno; EPROTO: the
// file does not.
int node_key(const std::string& node, NetworkKey* out);

}  // namespace verbena::wire
