// SPDX-License-Identifier: BSD-2-Clause
//
// A clause is one promise of a manual page or of the specification, in our own words, with its source. They
// are written in conformance/clauses/*.toml; clause_compiler.cc turns them into the table behind this header.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace conformance {

enum class Level : uint8_t {
  must,    // the source promises it
  should,  // the source recommends it
  choice,  // the source leaves it open; the report says what this device chose
};

struct Clause {
  std::string_view id;                        // page.promise, such as "ibv_dealloc_pd.busy"
  std::string_view chapter;                   // key of the chapter, such as "pd"
  std::string_view promise;                   // in our own words
  std::string_view source;                    // page and section, or table; one that has been read
  std::string_view applies;                   // QP types and capabilities, comma-separated, or "any"
  std::string_view untestable;                // why no program can test it, or empty
  std::string_view pending;                   // why nothing tests it yet, or empty
  std::span<const std::string_view> seen_in;  // drivers whose sources were read for it
  Level level;
  uint32_t position;  // order in which the clauses files name them
};

struct Chapter {
  std::string_view key;
  std::string_view title;
};

std::span<const Clause> clauses();    // sorted by id
std::span<const Chapter> chapters();  // in the order of the report

std::string_view name_of(Level level);

// The id of a clause that exists. Made from a literal; an id that no clauses file has is a compile error. A
// file that does so includes clause_ids.h, and is compiled again when clauses are added or removed.
class ClauseId {
 public:
  consteval ClauseId(const char* id);  // NOLINT: implicit on purpose. Defined in clause_ids.h

  // For tests generated from tables; nothing where there is no such clause.
  static std::optional<ClauseId> find(std::string_view id);
  static ClauseId at(size_t index) { return ClauseId(index); }

  size_t index() const { return index_; }
  const Clause& clause() const { return clauses()[index_]; }
  auto operator<=>(const ClauseId&) const = default;

 private:
  explicit constexpr ClauseId(size_t index) : index_(index) {}

  size_t index_;
};

}  // namespace conformance
