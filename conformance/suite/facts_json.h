// SPDX-License-Identifier: BSD-2-Clause
//
// Facts as a JSON object of strings, as reports and journals hold them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "suite/facts.h"

namespace conformance {

inline nlohmann::ordered_json object_of(const Facts& facts) {
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  for (const auto& [name, value] : facts) out[name] = value;
  return out;
}

inline Facts facts_in(const nlohmann::ordered_json& object) {
  Facts out;
  for (const auto& [name, value] : object.items()) out.emplace_back(name, value.get<std::string>());
  return out;
}

}  // namespace conformance
