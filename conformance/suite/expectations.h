// SPDX-License-Identifier: BSD-2-Clause
//
// Deviations that are known, for --expect FILE:
//
//   [[deviation]]
//   clause = "ibv_resize_cq.smaller"
//   reason = "what this device does instead, and why that is so"
//   source = "where that can be read"
//   layer = "provider library"          where it was seen
//   sometimes = true                    it depends on the instant: one that does not occur is not reported
#pragma once

#include <string>
#include <vector>

#include "suite/clause.h"

namespace conformance {

struct Expectation {
  ClauseId clause;
  std::string reason;
  std::string source;
  bool sometimes = false;
  std::string
      layer;  // "device", "provider library", "kernel core", "libibverbs", "librdmacm"; empty: as layers.toml
};

// Throws std::runtime_error for a file that cannot be read, an unknown clause, and one without reason or
// source.
std::vector<Expectation> read_expectations(const std::string& path);

}  // namespace conformance
