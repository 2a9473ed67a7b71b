// SPDX-License-Identifier: BSD-2-Clause
//
// How to make a node again that has gone with its last process. `verbena run` and `verbena env` put it into
// the environment beside the node's name: programs of a shell whose node nobody held meanwhile make it again.
// It has words such as "devices=2 link-layer=infiniband profile=minimal max_qp=16 ip=192.0.2.1 port=47910".
// Keys do not stand in it, but the name of the key's file does.
#pragma once

#include <string>

#include "fabric/device_table.h"

namespace verbena::wire {

inline constexpr const char* kRecipeVariable = "VERBENA_NODE_OPTIONS";

// `key_file`: "" for the user's own key. It has no white space (else the recipe is "", and nothing is made
// again).
std::string write_recipe(const DeviceTableOptions& options, const std::string& key_file);

// False: it is no recipe.
bool read_recipe(const std::string& recipe, DeviceTableOptions* options, std::string* key_file);

// Makes the node at `path` as $VERBENA_NODE_OPTIONS says, or mends it (ensure_node()); this process holds it.
// 0; ENOENT: that variable is not set, or is no recipe; else as ensure_node(), read_key() and user_key(),
// with one line in the log.
int restore_node(const std::string& path);

}  // namespace verbena::wire
