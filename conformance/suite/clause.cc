// SPDX-License-Identifier: BSD-2-Clause
#include "suite/clause.h"

namespace conformance {
namespace {

constexpr Clause clause_table[] = {
#include "clause_table.inc"
};

constexpr Chapter chapter_table[] = {
#include "chapter_table.inc"
};

}  // namespace

std::span<const Clause> clauses() { return clause_table; }
std::span<const Chapter> chapters() { return chapter_table; }

std::string_view name_of(Level level) {
  constexpr std::string_view names[] = {"must", "should", "choice"};
  return names[static_cast<size_t>(level)];
}

}  // namespace conformance
