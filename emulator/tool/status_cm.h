// SPDX-License-Identifier: BSD-2-Clause
//
// What a process has of the connection manager, in words: ids, listeners among them, and groups.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tool/snapshot.h"

namespace verbena::tool {

std::string cm_as_text(const NodeSnapshot& node, const ProcessSnapshot& process);  // "": it has nothing

// Adds "cm_ids": [{"id", "port_space", "qp_type", "state", "local", "remote", "peer", "qpn", "device",
// "backlog", "options"}] and "cm_groups": [{"mgid", "id", "send_only"}].
void add_cm(const NodeSnapshot& node, const ProcessSnapshot& process, nlohmann::ordered_json* json);

}  // namespace verbena::tool
