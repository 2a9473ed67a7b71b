// SPDX-License-Identifier: BSD-2-Clause
//
// A snapshot in words.
#pragma once

#include <string>
#include <vector>

#include "tool/snapshot.h"

namespace verbena::tool {

std::string status_as_text(const std::vector<NodeSnapshot>& nodes);

// {"nodes": [{"path", "problem"?, "devices": [...], "network": {"port", "addresses"}?, "processes": [{"pid",
// "program", "slot", "problem"?, "cm_ids": [...], "cm_groups": [...], "connections": [...]?, "counters":
// {...}, "qps": [...], "cqs": [...], "srqs": [...], "mrs":
// [...]}]}]}
std::string status_as_json(const std::vector<NodeSnapshot>& nodes);

}  // namespace verbena::tool
