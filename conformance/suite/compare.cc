// SPDX-License-Identifier: BSD-2-Clause
#include "suite/compare.h"

#include <algorithm>
#include <fstream>
#include <iomanip>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "suite/page.h"
#include "suite/report.h"

namespace conformance {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* columns[] = {"CONFORMS", "DEVIATES", "NOT CLAIMED", "NOT TESTED"};

Json read(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  Json json = Json::parse(file, nullptr, false);
  if (json.is_discarded() || !json.contains("clauses") || !json.contains("device"))
    throw std::runtime_error(path + " is no report of verbs-conformance");
  return json;
}

// A report reduced to verdicts (conformance/expectations/shrink) has no promises: the clauses files have
// them.
std::string promise_of(const Json& clause, const std::string& id) {
  const auto known = ClauseId::find(id);
  return clause.value("promise", known ? std::string(known->clause().promise) : "");
}

std::string class_of(const std::string& verdict) {
  std::string out = verdict;
  std::replace(out.begin(), out.end(), ' ', '-');
  return out;
}

}  // namespace

Comparison compare_reports(const std::vector<std::string>& paths) {
  Comparison out;
  std::vector<std::string> order;
  std::map<std::string, Comparison::Row> rows;
  for (size_t device = 0; device < paths.size(); ++device) {
    const Json report = read(paths[device]);
    std::string name = report["device"].value("name", paths[device]);
    if (std::find(out.devices.begin(), out.devices.end(), name) != out.devices.end())
      name += " (" + paths[device] + ")";
    out.devices.push_back(name);
    out.counts.emplace_back(std::size(columns));
    for (const Json& clause : report["clauses"]) {
      const std::string id = clause.value("id", ""), verdict = clause.value("verdict", "-");
      auto [row, is_new] = rows.try_emplace(id);
      if (is_new) {
        order.push_back(id);
        row->second = {id, promise_of(clause, id), std::vector<std::string>(paths.size(), "-"),
                       std::vector<std::string>(paths.size())};
      }
      row->second.verdicts[device] = verdict;
      row->second.details[device] = clause.value("detail", "");
      const auto column = std::find(std::begin(columns), std::end(columns), verdict);
      if (column != std::end(columns)) ++out.counts[device][static_cast<size_t>(column - columns)];
    }
  }
  for (const std::string& id : order) {
    const Comparison::Row& row = rows[id];
    if (std::adjacent_find(row.verdicts.begin(), row.verdicts.end(), std::not_equal_to<>()) !=
        row.verdicts.end())
      out.rows.push_back(row);
  }
  return out;
}

std::string to_text(const Comparison& comparison) {
  std::ostringstream out;
  size_t width = 12;
  for (const std::string& name : comparison.devices) width = std::max(width, name.size());
  const int column = static_cast<int>(width) + 2;
  out << std::left << std::setw(48) << "";
  for (const std::string& name : comparison.devices) out << std::setw(column) << name;
  for (size_t i = 0; i < std::size(columns); ++i) {
    out << '\n' << std::setw(48) << columns[i];
    for (const auto& counts : comparison.counts) out << std::setw(column) << counts[i];
  }
  out << "\n\n" << comparison.rows.size() << " clauses differ\n";
  for (const auto& row : comparison.rows) {
    out << std::setw(48) << row.id;
    for (const std::string& verdict : row.verdicts) out << std::setw(column) << verdict;
    out << '\n';
  }
  return out.str();
}

std::string to_html(const Comparison& comparison) {
  std::ostringstream out;
  out << page_begin("Verbs conformance compared") << "<div class=\"scroll\"><table><tr><th></th>";
  for (const std::string& name : comparison.devices) out << "<th>" << escaped(name) << "</th>";
  out << "</tr>";
  for (size_t i = 0; i < std::size(columns); ++i) {
    out << "<tr><td>" << columns[i] << "</td>";
    for (const auto& counts : comparison.counts) out << "<td>" << counts[i] << "</td>";
    out << "</tr>\n";
  }
  out << "</table></div>\n<h2>" << comparison.rows.size()
      << " clauses differ</h2><div class=\"filters\" hidden><input type=\"search\" placeholder=\"clause, "
         "verdict, word\" "
         "aria-label=\"Search\"></div><div class=\"scroll\"><table class=\"rows\" style=\"min-width:"
      << 11 * (comparison.devices.size() + 1) << "rem\"><tr><th></th>";
  for (const std::string& name : comparison.devices) out << "<th>" << escaped(name) << "</th>";
  out << "</tr>\n";
  for (const auto& row : comparison.rows) {
    out << "<tr data-v=\"\"><td><code>" << escaped(row.id) << "</code><br><span class=\"dim\">"
        << escaped(row.promise) << "</span></td>";
    for (size_t i = 0; i < row.verdicts.size(); ++i)
      out << "<td><span class=\"v " << class_of(row.verdicts[i]) << "\">" << escaped(row.verdicts[i])
          << "</span><br><span class=\"dim\">" << escaped(row.details[i]) << "</span></td>";
    out << "</tr>\n";
  }
  out << "</table></div>\n" << page_end();
  return out.str();
}

}  // namespace conformance
