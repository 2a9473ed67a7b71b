// SPDX-License-Identifier: BSD-2-Clause
//
// The output of `verbena metrics`.
#pragma once

#include <string>
#include <vector>

#include "survey/snapshot.h"

namespace verbena::tool {

// Prometheus' text format, version 0.0.4 (https://prometheus.io/docs/instrumenting/exposition_formats/): all
// values of one metric stand together, behind its HELP and TYPE. Names begin with verbena_.
// `each_qp`: also the metrics of each queue pair, as many as there are.
std::string metrics_as_text(const std::vector<NodeSnapshot>& nodes, bool each_qp);

}  // namespace verbena::tool
