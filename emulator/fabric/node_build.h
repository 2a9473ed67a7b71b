// SPDX-License-Identifier: BSD-2-Clause
//
// Making a node's folder (node.h), and mending that of a living node of which a cleaner of old files has
// deleted parts.
#pragma once

#include <sys/types.h>

#include <string>

#include "fabric/device_table.h"

namespace verbena {

class NodeDirectory;

// Builds a whole node in `folder`, which must not exist. 0, or an errno and *problem.
int build_node(const std::string& folder, const DeviceTable& devices, const NetworkKey& key,
               std::string* problem);

// Makes again what is missing at `node`, whose living processes have `directory`: folders, device tree, key.
// What its processes map stays without a name (node_file.h). The caller has the lock of the folder of nodes.
int mend_node(const std::string& node, const NodeDirectory& directory, const NetworkKey& key,
              std::string* problem);

// Puts the complete `fresh` in the place of `node`. The previous node lies at `fresh` afterwards.
int exchange_nodes(const std::string& fresh, const std::string& node);

// The node's key. All zero: the node has none.
NetworkKey read_node_key(const std::string& node);

}  // namespace verbena
