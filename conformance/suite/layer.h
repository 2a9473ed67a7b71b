// SPDX-License-Identifier: BSD-2-Clause
//
// Where a deviation is to be looked for: not everything that a program sees is done by the device. What the
// kernel's core, libibverbs and librdmacm do by themselves is in conformance/layers.toml.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "suite/report.h"

namespace conformance {

struct Layer {
  std::string_view clause;  // its id
  std::string_view name;    // "kernel core", "libibverbs", "librdmacm", "provider library"
  std::string_view does;    // what it does by itself
  std::string_view source;  // file and function
};

std::span<const Layer> layers();  // sorted by clause; each once

struct Attribution {
  std::string layer, reason;
};

// Of a clause that deviates. An expectation that names a layer has looked at this very device; next comes
// what is known of the clause; otherwise it is the device, its driver or its provider library, which a
// program cannot tell apart.
// Below a device whose commands go to no file of the kernel's (provenance: command_file) there is no core to blame.
Attribution attribution_of(const ClauseReport& clause, const Facts& provenance);

}  // namespace conformance
