// SPDX-License-Identifier: BSD-2-Clause
//
// The comparison as a page: a matrix, deviations first; on a phone each clause a block.
#include <algorithm>
#include <set>
#include <sstream>

#include "suite/compare.h"
#include "suite/page.h"

namespace conformance {
namespace {

constexpr Verdict verdicts_of_page[] = {Verdict::deviates, Verdict::conforms, Verdict::not_claimed,
                                        Verdict::not_tested};

void head(std::ostream& out, const Comparison& comparison) {
  out << "<thead><tr><th scope=\"col\">clause</th>";
  for (const std::string& name : comparison.names) out << "<th scope=\"col\">" << escaped(name) << "</th>";
  out << "</tr></thead>\n";
}

template <typename Text>
void fact_row(std::ostream& out, const Comparison& comparison, const std::string& title, Text text) {
  out << "<tr><th scope=\"row\">" << escaped(title) << "</th>";
  for (size_t i = 0; i < comparison.names.size(); ++i) {
    std::ostringstream value;
    value << text(i);
    out << "<td data-of=\"" << escaped(comparison.names[i]) << "\">" << escaped(value.str()) << "</td>";
  }
  out << "</tr>\n";
}

// All facts of any provenance, side by side.
void provenance(std::ostream& out, const Comparison& comparison) {
  std::vector<std::string> keys;
  for (const Document& document : comparison.documents)
    for (const auto& [key, value] : document.provenance)
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  fact_row(out, comparison, "began", [&](size_t i) { return comparison.documents[i].began; });
  for (const std::string& key : keys)
    fact_row(out, comparison, key,
             [&](size_t i) { return value_of(comparison.documents[i].provenance, key); });
}

void cell(std::ostream& out, const std::string& device, const Comparison::Cell& cell) {
  out << "<td data-of=\"" << escaped(device) << "\">";
  if (!cell.is_there) {
    out << "<span class=\"dim\">not in this report</span></td>";
    return;
  }
  out << badge(cell.verdict, cell.is_expected);
  if (cell.change == Change::worse) out << " <span class=\"worse\">worse</span>";
  if (cell.change == Change::better) out << " <span class=\"better\">better</span>";
  if (cell.is_flaky) out << " <span class=\"tag\">not always</span>";
  if (!cell.detail.empty()) out << "<br><span class=\"dim\">" << escaped(in_short(cell.detail)) << "</span>";
  out << "</td>";
}

void row(std::ostream& out, const Comparison& comparison, const Comparison::Row& row) {
  std::set<std::string> kinds;
  for (const Comparison::Cell& one : row.cells)
    if (one.is_there) kinds.insert(kind_of(one.verdict, one.is_expected));
  std::string all;
  for (const std::string& kind : kinds) all += (all.empty() ? "" : " ") + kind;
  out << "<tr data-v=\"" << all << "\" data-c=\"" << escaped(row.chapter) << "\" data-l=\""
      << escaped(row.level) << "\"><td><code>" << escaped(row.id) << "</code> <span class=\"tag\">"
      << escaped(row.level) << "</span><br><span class=\"dim\">" << escaped(row.promise) << "</span></td>";
  for (size_t i = 0; i < row.cells.size(); ++i) cell(out, comparison.names[i], row.cells[i]);
  out << "</tr>\n";
}

}  // namespace

std::string to_html(const Comparison& comparison) {
  std::ostringstream out;
  out << page_begin("Verbs conformance compared");
  for (const std::string& warning : comparison.warnings)
    out << "<p class=\"note\">" << escaped(warning) << "</p>\n";
  const size_t devices = comparison.names.size();
  for (size_t i = 1; i < devices; ++i)
    out << "<p><b>" << escaped(comparison.names[i]) << "</b> against " << escaped(comparison.names[0])
        << ": <span" << (comparison.worse[i] > 0 ? " class=\"worse\"" : "") << ">" << comparison.worse[i]
        << " worse</span>, <span" << (comparison.better[i] > 0 ? " class=\"better\"" : "") << ">"
        << comparison.better[i] << " better</span>, " << comparison.untested[i] << " no longer tested</p>\n";
  const std::string width = "style=\"min-width:" + std::to_string(9 * (devices + 1)) + "rem\"";
  out << "<h2>Devices</h2><div class=\"scroll\"><table class=\"rows\" " << (devices > 3 ? width : "") << ">";
  head(out, comparison);
  for (const Verdict verdict : verdicts_of_page)
    fact_row(out, comparison, std::string(name_of(verdict)), [&](size_t i) {
      const auto& clauses = comparison.documents[i].clauses;
      return std::count_if(clauses.begin(), clauses.end(),
                           [&](const auto& one) { return one.verdict == verdict; });
    });
  out << "</table></div>\n<details><summary>Where these reports come from</summary><div class=\"scroll\">"
         "<table class=\"rows\">";
  head(out, comparison);
  provenance(out, comparison);
  out << "</table></div></details>\n<h2>" << comparison.differing << " clauses differ, "
      << comparison.rows.size() - comparison.differing << " deviate on all</h2>\n";
  std::vector<std::pair<std::string, std::string>> keys;
  for (const auto& [key, title] : comparison.documents.front().chapters) keys.emplace_back(key, title);
  out << filters(keys) << "<div class=\"scroll\"><table class=\"rows\" " << (devices > 3 ? width : "") << ">";
  head(out, comparison);
  out << "<tbody>";
  for (const Comparison::Row& one : comparison.rows) row(out, comparison, one);
  out << "</tbody></table></div>\n" << page_end();
  return out.str();
}

}  // namespace conformance
