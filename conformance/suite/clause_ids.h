// SPDX-License-Identifier: BSD-2-Clause
//
// The ids of all clauses, for ClauseId("page.promise") at compile time.
#pragma once

#include <iterator>

#include "suite/clause.h"

namespace conformance {

namespace generated {
inline constexpr std::string_view clause_ids[] = {
#include "clause_ids.inc"
};

consteval size_t position_of(std::string_view id) {
  for (size_t low = 0, high = std::size(clause_ids); low < high;) {
    const size_t middle = (low + high) / 2;
    if (clause_ids[middle] == id) return middle;
    if (clause_ids[middle] < id) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  throw "no clause of this id in conformance/clauses/*.toml";
}
}  // namespace generated

consteval ClauseId::ClauseId(const char* id) : index_(generated::position_of(id)) {}

}  // namespace conformance
