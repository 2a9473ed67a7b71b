// SPDX-License-Identifier: BSD-2-Clause
//
// The fabric's key: 32 random bytes that all its nodes have. A key file holds them as 64 hexadecimal digits
// and a line feed. Who reads the file can join the fabric, so it is its owner's alone, mode 0600.
#pragma once

#include <string>

#include "fabric/device_table.h"

namespace verbena::wire {

// Makes the file, which must not exist, with a new key. 0 or errno, and *problem in one line. EEXIST.
int make_key(const std::string& path, std::string* problem);

// Reads the file. EPERM: not this user's (root's may be read through one of its groups, as secrets are
// mounted into a container), or others can read it; EINVAL: it does not hold a key; else what open(2) and
// read(2) say.
int read_key(const std::string& path, NetworkKey* out, std::string* problem);

// The user's own key, <folder>/key, which is made when it is not there: all nodes of a user on a machine have
// it, unless they are given another. The folder must exist. Safe to call from many processes at once.
int user_key(const std::string& folder, NetworkKey* out, std::string* problem);

// Of a node (fabric/node.h: key_path); it holds the 32 bytes themselves. errno; EPROTO: it does not.
int node_key(const std::string& node, NetworkKey* out);

}  // namespace verbena::wire
