// SPDX-License-Identifier: BSD-2-Clause
#include "suite/compare.h"

#include <strings.h>

#include <algorithm>
#include <array>
#include <iomanip>
#include <map>
#include <set>
#include <sstream>

namespace conformance {
namespace {

constexpr std::array verdicts_of_text = {Verdict::conforms, Verdict::deviates, Verdict::not_claimed,
                                         Verdict::not_tested};

bool contains(const std::vector<std::string>& list, std::string_view word) {
  return std::any_of(list.begin(), list.end(), [&](const std::string& one) {
    return strcasecmp(one.c_str(), std::string(word).c_str()) == 0;
  });
}

bool passes(const Comparison::Row& row, const Filter& filter) {
  if (!filter.levels.empty() && !contains(filter.levels, row.level)) return false;
  if (!filter.chapters.empty() && !contains(filter.chapters, row.chapter)) return false;
  return filter.verdicts.empty() ||
         std::any_of(row.cells.begin(), row.cells.end(), [&](const Comparison::Cell& cell) {
           return cell.is_there && contains(filter.verdicts, name_of(cell.verdict));
         });
}

bool differs(const Comparison::Row& row) {
  return std::any_of(row.cells.begin(), row.cells.end(), [&](const Comparison::Cell& cell) {
    return cell.is_there != row.cells[0].is_there || cell.verdict != row.cells[0].verdict;
  });
}

bool deviates(const Comparison::Row& row) {
  return std::any_of(row.cells.begin(), row.cells.end(),
                     [](const Comparison::Cell& cell) { return cell.verdict == Verdict::deviates; });
}

// Deviations first, worst first: of "must" before "should"; what got worse; what nobody expects. Otherwise
// the order of the clauses files.
int weight(const Comparison::Row& row) {
  if (!deviates(row)) return 100;
  const int level = row.level == "must" ? 0 : row.level == "should" ? 10 : 20;
  const bool worse = std::any_of(row.cells.begin(), row.cells.end(),
                                 [](const auto& cell) { return cell.change == Change::worse; });
  const bool known = std::all_of(row.cells.begin(), row.cells.end(), [](const auto& cell) {
    return cell.verdict != Verdict::deviates || cell.is_expected;
  });
  return level + (worse ? 0 : 2) + (known ? 1 : 0);
}

std::vector<std::string> warnings_of(const Comparison& comparison) {
  std::vector<std::string> out;
  const auto differ = [&](const char* fact) {
    std::set<std::string> values;
    for (const Document& document : comparison.documents) values.insert(value_of(document.provenance, fact));
    return values.size() > 1;
  };
  if (differ("clauses_sha256"))
    out.emplace_back(
        "the reports are of different clauses (clauses_sha256): a verdict may differ because its clause "
        "does");
  else if (differ("suite_commit"))
    out.emplace_back(
        "the reports are of different commits of the suite: a verdict may differ because its test does");
  for (size_t i = 0; i < comparison.documents.size(); ++i) {
    const Document& document = comparison.documents[i];
    if (!document.stopped.empty()) out.push_back(comparison.names[i] + " is incomplete: " + document.stopped);
  }
  return out;
}

void add(Comparison& out, std::map<std::string, size_t>& rows, size_t device, size_t devices) {
  for (const Document::Clause& clause : out.documents[device].clauses) {
    const auto [found, is_new] = rows.try_emplace(clause.id, out.rows.size());
    if (is_new)
      out.rows.push_back(
          {clause.id, clause.chapter, clause.level, clause.promise, std::vector<Comparison::Cell>(devices)});
    Comparison::Cell& cell = out.rows[found->second].cells[device];
    cell = {true, clause.verdict, clause.is_expected, clause.is_flaky(), clause.detail, Change::none};
    const Comparison::Cell& first = out.rows[found->second].cells[0];
    if (device == 0 || !first.is_there) continue;
    cell.change = change_of(first.verdict, cell.verdict);
    out.better[device] += cell.change == Change::better;
    out.worse[device] += cell.change == Change::worse;
    out.untested[device] += cell.change == Change::untested;
  }
}

std::string text_of(const Comparison::Cell& cell) {
  if (!cell.is_there) return "-";
  std::string out(name_of(cell.verdict));
  if (cell.is_expected) out += " (known)";
  if (cell.change == Change::better) out += " +";
  if (cell.change == Change::worse) out += " !";
  return out;
}

}  // namespace

Change change_of(Verdict before, Verdict after) {
  if (before == after) return Change::none;
  if (after == Verdict::deviates) return before == Verdict::not_tested ? Change::none : Change::worse;
  if (after == Verdict::not_tested) return Change::untested;
  if (before == Verdict::deviates) return Change::better;
  if (before == Verdict::conforms && after == Verdict::not_claimed) return Change::worse;
  if (before == Verdict::not_claimed && after == Verdict::conforms) return Change::better;
  return Change::none;
}

bool Comparison::is_worse() const {
  return std::any_of(worse.begin(), worse.end(), [](size_t count) { return count > 0; });
}

Comparison compare_reports(const std::vector<std::string>& paths, const Filter& filter) {
  Comparison out;
  out.better.resize(paths.size());
  out.worse.resize(paths.size());
  out.untested.resize(paths.size());
  std::map<std::string, size_t> rows;
  for (size_t device = 0; device < paths.size(); ++device) {
    out.documents.push_back(read_document(paths[device]));
    const std::string given = out.documents.back().name();
    std::string name = given.empty() ? paths[device] : given;
    if (std::find(out.names.begin(), out.names.end(), name) != out.names.end())
      name += " (" + paths[device] + ")";
    out.names.push_back(name);
    add(out, rows, device, paths.size());
  }
  std::erase_if(out.rows, [&](const Comparison::Row& row) {
    return !passes(row, filter) || !(differs(row) || deviates(row));
  });
  out.differing = static_cast<size_t>(std::count_if(out.rows.begin(), out.rows.end(), differs));
  std::stable_sort(out.rows.begin(), out.rows.end(),
                   [](const auto& a, const auto& b) { return weight(a) < weight(b); });
  out.warnings = warnings_of(out);
  return out;
}

std::string to_text(const Comparison& comparison) {
  std::ostringstream out;
  size_t width = 20;
  for (const std::string& name : comparison.names) width = std::max(width, name.size());
  const int column = static_cast<int>(width) + 2;
  for (const std::string& warning : comparison.warnings) out << "warning: " << warning << '\n';
  const auto line = [&](const std::string& title, auto text) {
    out << std::left << std::setw(48) << title;
    for (size_t i = 0; i < comparison.names.size(); ++i) out << std::setw(column) << text(i);
    out << '\n';
  };
  line("", [&](size_t i) { return comparison.names[i]; });
  for (const char* fact : {"kernel", "driver", "provider", "firmware", "rdma_core", "suite_commit"}) {
    const auto value = [&](size_t i) {
      return value_of(comparison.documents[i].provenance, fact).substr(0, width);
    };
    bool is_known = false;
    for (size_t i = 0; i < comparison.names.size(); ++i) is_known |= !value(i).empty();
    if (is_known) line(fact, value);
  }
  for (const Verdict verdict : verdicts_of_text)
    line(std::string(name_of(verdict)), [&](size_t i) {
      const auto& clauses = comparison.documents[i].clauses;
      return std::count_if(clauses.begin(), clauses.end(),
                           [&](const auto& one) { return one.verdict == verdict; });
    });
  const auto number = [](const std::vector<size_t>& counts) {
    return [&counts](size_t i) { return i == 0 ? std::string("-") : std::to_string(counts[i]); };
  };
  line("better than the first (+)", number(comparison.better));
  line("worse than the first (!)", number(comparison.worse));
  line("no longer tested", number(comparison.untested));
  out << '\n'
      << comparison.differing << " clauses differ, " << comparison.rows.size() - comparison.differing
      << " deviate on all; deviations first\n";
  for (const Comparison::Row& row : comparison.rows)
    line(row.id, [&](size_t i) { return text_of(row.cells[i]); });
  return out.str();
}

}  // namespace conformance
