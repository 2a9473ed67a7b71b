// SPDX-License-Identifier: BSD-2-Clause
#include "suite/clause.h"

#include <algorithm>

namespace conformance {
namespace {

constexpr std::string_view seen_table[] = {
#include "seen_table.inc"
};

constexpr Clause clause_table[] = {
#include "clause_table.inc"
};

constexpr Chapter chapter_table[] = {
#include "chapter_table.inc"
};

}  // namespace

std::span<const Clause> clauses() { return clause_table; }
std::span<const Chapter> chapters() { return chapter_table; }

std::optional<ClauseId> ClauseId::find(std::string_view id) {
  const auto all = clauses();
  const auto found =
      std::lower_bound(all.begin(), all.end(), id,
                       [](const Clause& clause, std::string_view wanted) { return clause.id < wanted; });
  if (found == all.end() || found->id != id) return std::nullopt;
  return ClauseId(static_cast<size_t>(found - all.begin()));
}

std::string_view name_of(Level level) {
  constexpr std::string_view names[] = {"must", "should", "choice"};
  return names[static_cast<size_t>(level)];
}

}  // namespace conformance
