// SPDX-License-Identifier: BSD-2-Clause
//
// The output of `verbena status`.
#pragma once

#include <string>
#include <vector>

#include "survey/snapshot.h"

namespace verbena::tool {

std::string status_as_text(const std::vector<NodeSnapshot>& nodes);

// {"nodes": [{"path", "problem"?, "cm_problem"?, "devices": [...], "network": {"port", "addresses"}?,
// "processes": [{"pid", "program", "slot", "generation", "cm_ids": [...], "cm_groups": [...], "connections":
// [...]?, "problem"?, "counters": {...}?, "qps": [...]?, "cqs": [...]?, "srqs": [...]?, "mrs": [...]?}]}]}
//
// "?": may be absent. A process has either "problem", or "counters" and its objects.
std::string status_as_json(const std::vector<NodeSnapshot>& nodes);

}  // namespace verbena::tool
