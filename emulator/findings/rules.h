// SPDX-License-Identifier: BSD-2-Clause
//
// The rules of `verbena check`: one table. The checker in the program's process reports by the id of a rule,
// the command prints title, rule, source and remedy from here, and docs/CHECK.md is compared with it
// (tests/docs/check_rules.py).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace verbena::findings {

enum class Level : uint8_t {
  kError,    // breaks a rule of the interface: undefined, refused, or an error completion
  kWarning,  // works by luck, or only here
  kNote,     // worth knowing
};

struct Rule {
  std::string_view id;     // permanent: suppressions and CI configurations name it
  std::string_view group;  // "posting", "completion", "memory", "connection", "lifetime", "portability"
  Level level;
  bool by_default;         // false: only with --enable ID
  std::string_view title;  // of a finding, without a full stop
  std::string_view rule;   // one or two sentences
  std::string_view source;
  std::string_view remedy;
  std::string_view example;  // a line or two of a program that breaks it
};

inline constexpr Rule kRules[] = {
// clang-format off: in the order of --list
#include "findings/posting_rules.inc"
#include "findings/completion_rules.inc"
#include "findings/memory_rules.inc"
#include "findings/connection_rules.inc"
#include "findings/lifetime_rules.inc"
#include "findings/portability_rules.inc"
// clang-format on
};
inline constexpr size_t kRuleCount = sizeof kRules / sizeof kRules[0];

// The rule with this id; nullptr: there is none.
constexpr const Rule* find_rule(std::string_view id) {
  for (const Rule& rule : kRules)
    if (rule.id == id) return &rule;
  return nullptr;
}

// The same for an id in the source: an unknown one does not compile.
consteval const Rule& rule(std::string_view id) { return *find_rule(id); }

constexpr std::string_view name_of(Level level) {
  return level == Level::kError ? "error" : level == Level::kWarning ? "warning" : "note";
}

}  // namespace verbena::findings
