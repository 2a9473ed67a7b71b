// SPDX-License-Identifier: BSD-2-Clause
#include "suite/history.h"

#include <algorithm>
#include <iomanip>
#include <map>
#include <sstream>

#include "suite/compare.h"
#include "suite/page.h"

namespace conformance {
namespace {

struct Former {
  std::map<std::string, Verdict> verdicts;
  std::string hash;
};

void hold_against(History::Run& run, const Former& former) {
  for (const Document::Clause& clause : run.document.clauses) {
    const auto found = former.verdicts.find(clause.id);
    if (found == former.verdicts.end()) continue;
    const Change change = change_of(found->second, clause.verdict);
    if (change == Change::better) run.better.push_back(clause.id);
    if (change == Change::worse) run.worse.push_back(clause.id);
  }
  run.has_other_clauses = value_of(run.document.provenance, "clauses_sha256") != former.hash;
}

// Deviations over the runs, one line for each device.
void drawing(std::ostream& out, const History& history) {
  std::map<std::string, std::vector<std::pair<size_t, size_t>>> lines;
  size_t most = 1;
  for (size_t i = 0; i < history.runs.size(); ++i) {
    const Document& document = history.runs[i].document;
    lines[document.name()].emplace_back(i, document.summary.deviates);
    most = std::max(most, document.summary.deviates);
  }
  const double width = 700, height = 160, left = 40, top = 12;
  const auto x = [&](size_t i) {
    return left +
           width * static_cast<double>(i) / static_cast<double>(std::max<size_t>(history.runs.size() - 1, 1));
  };
  const auto y = [&](size_t count) {
    return top + height * (1 - static_cast<double>(count) / static_cast<double>(most));
  };
  out << "<svg viewBox=\"0 0 900 200\" role=\"img\" aria-label=\"Clauses that deviate, over the runs\" "
         "width=\"100%\">"
      << "<text x=\"0\" y=\"" << top + 5 << "\">" << most << "</text><text x=\"0\" y=\"" << top + height
      << "\">0</text>";
  for (const auto& [name, points] : lines) {
    out << "<polyline fill=\"none\" stroke=\"var(--DEVIATES)\" stroke-width=\"2\" points=\"";
    for (const auto& [i, count] : points) out << x(i) << ',' << y(count) << ' ';
    out << "\"/>";
    for (const auto& [i, count] : points)
      out << "<circle cx=\"" << x(i) << "\" cy=\"" << y(count)
          << "\" r=\"4\" fill=\"var(--DEVIATES)\"><title>" << escaped(history.runs[i].document.began) << ": "
          << count << "</title></circle>";
    out << "<text x=\"" << x(points.back().first) + 10 << "\" y=\"" << y(points.back().second) + 4 << "\">"
        << escaped(name) << "</text>";
  }
  out << "</svg>\n";
}

void list(std::ostream& out, const char* kind, const std::vector<std::string>& clauses) {
  if (clauses.empty()) return;
  out << "<details><summary><span class=\"" << kind << "\">" << clauses.size() << ' ' << kind
      << "</span></summary>";
  for (const std::string& id : clauses) out << "<code>" << escaped(id) << "</code><br>";
  out << "</details>";
}

std::string note_of(const History::Run& run) {
  std::string out = run.is_first ? "first of its device" : "";
  if (run.has_other_clauses) out += "other clauses than before";
  if (!run.document.stopped.empty())
    out += (out.empty() ? "" : "; ") + ("incomplete: " + run.document.stopped);
  return out;
}

}  // namespace

History history_of(const std::vector<std::string>& paths) {
  History out;
  for (const std::string& path : paths) out.runs.push_back({read_document(path), {}, {}, false, false});
  std::stable_sort(out.runs.begin(), out.runs.end(),
                   [](const auto& a, const auto& b) { return a.document.began < b.document.began; });
  std::map<std::string, Former> former;
  for (History::Run& run : out.runs) {
    const auto [found, is_new] = former.try_emplace(run.document.name());
    if (is_new)
      run.is_first = true;
    else
      hold_against(run, found->second);
    for (const Document::Clause& clause : run.document.clauses)
      if (clause.verdict != Verdict::not_tested) found->second.verdicts[clause.id] = clause.verdict;
    found->second.hash = value_of(run.document.provenance, "clauses_sha256");
  }
  return out;
}

std::string to_text(const History& history) {
  std::ostringstream out;
  out << std::left << std::setw(22) << "began" << std::setw(16) << "device" << std::right << std::setw(9)
      << "conform" << std::setw(9) << "deviate" << std::setw(8) << "better" << std::setw(8) << "worse"
      << "  note\n";
  for (const History::Run& run : history.runs)
    out << std::left << std::setw(22) << run.document.began << std::setw(16) << run.document.name()
        << std::right << std::setw(9) << run.document.summary.conforms << std::setw(9)
        << run.document.summary.deviates << std::setw(8) << run.better.size() << std::setw(8)
        << run.worse.size() << "  " << note_of(run) << '\n';
  return out.str();
}

std::string to_html(const History& history) {
  std::ostringstream out;
  out << page_begin("Verbs conformance over time");
  drawing(out, history);
  out << "<div class=\"scroll\"><table class=\"rows\"><thead><tr><th scope=\"col\">run</th><th "
         "scope=\"col\">device</th>"
         "<th scope=\"col\">verdicts</th><th scope=\"col\">changed</th><th "
         "scope=\"col\">from</th></tr></thead><tbody>\n";
  for (auto run = history.runs.rbegin(); run != history.runs.rend(); ++run) {
    const Summary& s = run->document.summary;
    const Facts& from = run->document.provenance;
    out << "<tr><td data-of=\"run\">" << escaped(run->document.began) << "</td><td data-of=\"device\">"
        << escaped(run->document.name()) << "</td><td data-of=\"verdicts\"><span class=\"worse\">"
        << s.deviates << "</span> deviate (" << s.expected << " known), " << s.conforms << " conform, "
        << s.not_claimed << " not claimed, " << s.not_tested << " not tested</td><td data-of=\"changed\">";
    list(out, "worse", run->worse);
    list(out, "better", run->better);
    out << escaped(note_of(*run)) << "</td><td data-of=\"from\" class=\"dim\">"
        << escaped(value_of(from, "kernel")) << ' ' << escaped(value_of(from, "driver")) << ' '
        << escaped(value_of(from, "provider")) << "<br>suite "
        << escaped(value_of(from, "suite_commit").substr(0, 12)) << "</td></tr>\n";
  }
  out << "</tbody></table></div>\n" << page_end();
  return out.str();
}

}  // namespace conformance
