// SPDX-License-Identifier: BSD-2-Clause
#include "suite/report_page.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "suite/page.h"

namespace conformance {
namespace {

using ClauseEntry = Document::Clause;

bool deviates(const ClauseEntry& clause) { return clause.verdict == Verdict::deviates; }
std::string kind_of(const ClauseEntry& clause) { return kind_of(clause.verdict, clause.is_expected); }
std::string counted(size_t number, const char* one, const char* more) {
  return std::to_string(number) + ' ' + (number == 1 ? one : more);
}

// The worst first: what nobody expects, what ended the process, what must be so.
int weight(const ClauseEntry& clause) {
  const bool ended = clause.detail.find("killed by signal") != std::string::npos ||
                     clause.detail.find("did not end") != std::string::npos;
  const int level = clause.level == "must" ? 0 : clause.level == "should" ? 1 : 2;
  return (clause.is_expected ? 100 : 0) + (ended ? 0 : 10) + level;
}

std::vector<const ClauseEntry*> deviations_of(const Document& document) {
  std::vector<const ClauseEntry*> out;
  for (const ClauseEntry& clause : document.clauses)
    if (deviates(clause)) out.push_back(&clause);
  std::stable_sort(out.begin(), out.end(), [](auto* a, auto* b) { return weight(*a) < weight(*b); });
  return out;
}

void answer(std::ostream& out, const Document& document) {
  const Summary& s = document.summary;
  if (s.unexpected > 0)
    out << "<p class=\"answer DEVIATES\">" << counted(s.unexpected, "clause deviates", "clauses deviate")
        << "</p>\n";
  else if (s.conforms == 0)
    out << "<p class=\"answer\">Nothing was found</p>\n";
  else
    out << "<p class=\"answer CONFORMS\">No unexpected deviation</p>\n";
  const std::tuple<const char*, std::string, size_t> kinds[] = {
      {"DEVIATES", "deviate", s.unexpected},
      {"EXPECTED", "deviate as expected", s.expected},
      {"CONFORMS", "conform", s.conforms},
      {"NOT-CLAIMED", "not claimed", s.not_claimed},
      {"NOT-TESTED", "not tested", s.not_tested}};
  out << "<div class=\"bar\" aria-hidden=\"true\">";
  for (const auto& [kind, what, number] : kinds)
    out << "<i class=\"" << kind << "\" style=\"width:"
        << 100.0 * static_cast<double>(number) / static_cast<double>(std::max<size_t>(s.clauses, 1))
        << "%\"></i>";
  out << "</div>\n<ul class=\"counts\">";
  for (const auto& [kind, what, number] : kinds)
    out << "<li><i class=\"cell " << kind << "\"></i><b>" << number << "</b> " << what << "</li>";
  out << "</ul>\n<p class=\"dim\">" << s.clauses << " clauses, " << s.tests << " tests run";
  if (document.rounds > 1) out << " in " << document.rounds << " rounds";
  out << " in " << document.seconds << " s; of what is not tested, " << s.pending
      << " clauses wait for a test and " << s.untestable << " no program can test.</p>\n";
  if (!document.stopped.empty())
    out << "<p class=\"note\"><b>This report is incomplete:</b> " << escaped(document.stopped) << "</p>\n";
  for (const std::string& id : document.stale)
    out << "<p class=\"note\">Expected deviation that no longer occurs: <code>" << escaped(id)
        << "</code></p>\n";
}

// The first ones of what deviates, each a link to all that is known of it.
void worst(std::ostream& out, const std::vector<const ClauseEntry*>& deviating) {
  constexpr size_t most = 5;
  if (deviating.empty()) return;
  out << "<ol class=\"worst\">";
  for (size_t i = 0; i < std::min(deviating.size(), most); ++i) {
    const ClauseEntry& clause = *deviating[i];
    out << "<li>" << badge(clause.verdict, clause.is_expected) << " <a href=\"#" << escaped(clause.id)
        << "\"><code>" << escaped(clause.id) << "</code></a> <span class=\"dim\">"
        << escaped(in_short(clause.detail)) << "</span></li>\n";
  }
  out << "</ol>\n";
  if (deviating.size() > most)
    out << "<p><a href=\"#deviations\">" << deviating.size() - most << " more deviate</a></p>\n";
}

// Each chapter a tile, each clause a cell.
void picture(std::ostream& out, const Document& document) {
  out << "<nav class=\"map\" aria-label=\"Chapters\">\n";
  for (const auto& [key, title] : document.chapters) {
    std::ostringstream cells;
    std::map<std::string, size_t> counts;
    size_t all = 0;
    for (const ClauseEntry& clause : document.clauses) {
      if (clause.chapter != key) continue;
      cells << "<i class=\"cell " << kind_of(clause) << "\"></i>";
      ++counts[kind_of(clause)], ++all;
    }
    const char* worst = counts["DEVIATES"] > 0     ? "DEVIATES"
                        : counts["EXPECTED"] > 0   ? "EXPECTED"
                        : counts["CONFORMS"] > 0   ? "CONFORMS"
                        : counts["NOT-TESTED"] > 0 ? "NOT-TESTED"
                                                   : "NOT-CLAIMED";
    out << "<a class=\"tile " << worst << "\" href=\"#" << escaped(key) << "\"><b>" << escaped(title)
        << "</b><small>" << counts["CONFORMS"] << " of " << all << " conform";
    if (const size_t number = counts["DEVIATES"] + counts["EXPECTED"]; number > 0)
      out << ", " << counted(number, "deviates", "deviate");
    out << "</small><span class=\"cells\" aria-hidden=\"true\">" << cells.str() << "</span></a>\n";
  }
  out << "</nav>\n";
}

// The exchange of calls of each test that saw it.
void calls(std::ostream& out, const Document& document, const ClauseEntry& clause) {
  for (const Document::Test& test : document.tests) {
    if (test.calls.empty()) continue;
    if (std::find(test.deviating.begin(), test.deviating.end(), clause.id) == test.deviating.end()) continue;
    out << "<h3>Calls of " << escaped(test.name) << "</h3><pre>";
    for (const std::string& line : test.calls) out << escaped(line) << '\n';
    out << "</pre>";
  }
}

void row(std::ostream& out, const Document& document, const ClauseEntry& c) {
  out << "<details id=\"" << escaped(c.id) << "\" data-v=\"" << kind_of(c) << "\" data-c=\""
      << escaped(c.chapter) << "\" data-l=\"" << escaped(c.level) << "\"><summary>"
      << badge(c.verdict, c.is_expected) << "<code>" << escaped(c.id) << "</code><span class=\"tag\">"
      << escaped(c.level) << "</span>";
  if (deviates(c)) {
    out << "<span class=\"tag\">" << escaped(c.layer.empty() ? "device" : c.layer) << "</span>";
    if (c.is_flaky()) out << "<span class=\"tag\">in " << c.deviations << " of " << c.runs << " runs</span>";
    out << "<span class=\"say\">" << escaped(in_short(c.detail)) << "</span>";
  }
  out << "</summary><div class=\"in\">";
  if (deviates(c)) out << "<h3>Promised</h3>";
  out << "<p>" << escaped(c.promise) << "</p><p class=\"dim\">" << escaped(c.source) << " &middot; "
      << escaped(c.level) << " &middot; applies to " << escaped(c.applies) << "</p>";
  if (!c.detail.empty())
    out << (deviates(c) ? "<h3>Seen</h3>" : "") << "<pre>" << escaped(c.detail) << "</pre>";
  if (c.is_expected)
    out << "<h3>Known</h3><p>" << escaped(c.reason) << " (" << escaped(c.reason_source) << ")</p>";
  if (deviates(c) && !c.layer.empty())
    out << "<h3>Layer</h3><p>" << escaped(c.layer) << ": " << escaped(c.layer_reason) << "</p>";
  if (deviates(c)) calls(out, document, c);
  if (!c.tests.empty()) {
    out << "<p class=\"dim\">Tests:";
    for (const std::string& test : c.tests) out << ' ' << escaped(test);
    out << "</p>";
  }
  out << "</div></details>\n";
}

void chapter(std::ostream& out, const Document& document, const Document::Chapter& chapter) {
  std::ostringstream body;
  size_t count = 0, conforms = 0;
  for (const ClauseEntry& clause : document.clauses) {
    if (clause.chapter != chapter.key) continue;
    ++count;
    conforms += clause.verdict == Verdict::conforms;
    if (!deviates(clause)) {
      row(body, document, clause);
      continue;
    }
    body << "<p class=\"ref\" data-of=\"" << escaped(clause.id) << "\">"
         << badge(clause.verdict, clause.is_expected) << " <a href=\"#" << escaped(clause.id) << "\"><code>"
         << escaped(clause.id) << "</code></a></p>\n";
  }
  out << "<section id=\"" << escaped(chapter.key) << "\"><h2>" << escaped(chapter.title)
      << " <span class=\"dim\">" << conforms << " of " << count << "</span></h2>\n"
      << body.str() << "</section>\n";
}

void facts(std::ostream& out, const char* id, const char* title, const Facts& facts) {
  if (facts.empty()) return;
  out << "<h2 id=\"" << id << "\">" << title << "</h2><div class=\"facts\">";
  for (const auto& [key, value] : facts)
    out << "<div><span class=\"dim\">" << escaped(key) << "</span><span>" << escaped(value)
        << "</span></div>";
  out << "</div>\n";
}

}  // namespace

std::string to_html(const Document& document) {
  std::ostringstream out;
  const std::string name = document.device.empty() ? "?" : document.device.front().second;
  out << page_begin("Verbs conformance of " + name);
  out << "<p class=\"dim\">" << escaped(document.began) << ": <code>" << escaped(document.command)
      << "</code></p>\n";
  const auto deviating = deviations_of(document);
  answer(out, document);
  worst(out, deviating);
  picture(out, document);
  std::vector<std::pair<std::string, std::string>> keys;
  for (const auto& [key, title] : document.chapters) keys.emplace_back(key, title);
  out << filters(keys);
  if (!deviating.empty()) {
    out << "<section id=\"deviations\"><h2>What deviates, worst first</h2>\n";
    for (const ClauseEntry* clause : deviating) row(out, document, *clause);
    out << "</section>\n";
  }
  for (const Document::Chapter& one : document.chapters) chapter(out, document, one);
  facts(out, "provenance", "Where this report comes from", document.provenance);
  facts(out, "the-device", "The device", document.device);
  out << page_end();
  return out.str();
}

}  // namespace conformance
