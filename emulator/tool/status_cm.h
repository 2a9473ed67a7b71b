// SPDX-License-Identifier: BSD-2-Clause
//
// The connection manager's part of `verbena status`: the ids of a process, listeners included, and its
// groups.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "survey/snapshot.h"

namespace verbena::tool {

std::string cm_as_text(const NodeSnapshot& node, const ProcessSnapshot& process);  // "": it has none

// Adds "cm_ids": [{"id", "port_space", "qp_type", "state", "local", "remote", "peer", "qpn", "device",
// "backlog", "options"}] and "cm_groups": [{"mgid", "id", "send_only"}].
void add_cm(const NodeSnapshot& node, const ProcessSnapshot& process, nlohmann::ordered_json* json);

}  // namespace verbena::tool
