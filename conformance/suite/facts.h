// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace conformance {

// Names and values, in the order in which a report shows them.
using Facts = std::vector<std::pair<std::string, std::string>>;

// The value, or "".
inline std::string value_of(const Facts& facts, const std::string& name) {
  for (const auto& [key, value] : facts)
    if (key == name) return value;
  return {};
}

}  // namespace conformance
