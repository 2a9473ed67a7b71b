// SPDX-License-Identifier: BSD-2-Clause
//
// The report for people. Complete without its script, which only filters, and opens what is printed in older
// browsers.
#include <algorithm>
#include <sstream>

#include "suite/page.h"
#include "suite/report.h"

namespace conformance {
namespace {

std::string css_class(Verdict verdict) {
  std::string name(name_of(verdict));
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

std::string text(std::string_view view) { return escaped(std::string(view)); }

void counts(std::ostream& out, const Summary& s) {
  const std::pair<Verdict, size_t> all[] = {{Verdict::conforms, s.conforms},
                                            {Verdict::deviates, s.deviates},
                                            {Verdict::not_claimed, s.not_claimed},
                                            {Verdict::not_tested, s.not_tested}};
  out << "<div class=\"counts\">";
  for (const auto& [verdict, number] : all)
    out << "<span><b>" << number << "</b>" << name_of(verdict) << "</span>";
  out << "</div>\n<div class=\"bar\">";
  for (const auto& [verdict, number] : all)
    out << "<i class=\"" << css_class(verdict) << "\" style=\"width:"
        << 100.0 * static_cast<double>(number) / static_cast<double>(std::max<size_t>(s.clauses, 1))
        << "%\"></i>";
  out << "</div>\n<p class=\"dim\">" << s.clauses << " clauses, " << s.tests
      << " tests run; of the deviations " << s.expected << " are expected; of what is not tested, "
      << s.pending << " clauses wait for a test and " << s.untestable << " no program can test.</p>\n";
}

// Of use with the script only, which shows them.
void filters(std::ostream& out) {
  out << "<div class=\"filters\" hidden>";
  for (const std::string& kind :
       {css_class(Verdict::conforms), css_class(Verdict::deviates), std::string("EXPECTED"),
        css_class(Verdict::not_claimed), css_class(Verdict::not_tested)}) {
    std::string label = kind;
    std::replace(label.begin(), label.end(), '-', ' ');
    out << "<label><input type=\"checkbox\" checked value=\"" << kind << "\"> " << label << "</label>";
  }
  out << "<select data-by=\"c\" aria-label=\"Chapter\"><option value=\"\">all chapters</option>";
  for (const Chapter& c : chapters())
    out << "<option value=\"" << text(c.key) << "\">" << text(c.title) << "</option>";
  out << "</select><select data-by=\"l\" aria-label=\"Level\"><option value=\"\">all levels</option>";
  for (const Level level : {Level::must, Level::should, Level::choice})
    out << "<option value=\"" << name_of(level) << "\">" << name_of(level) << "</option>";
  out << "</select><input type=\"search\" placeholder=\"clause, word, test\" aria-label=\"Search\"></div>\n";
}

void jumps(std::ostream& out) {
  out << "<nav><details><summary>Chapters</summary>";
  for (const Chapter& c : chapters()) out << "<a href=\"#" << text(c.key) << "\">" << text(c.title) << "</a>";
  out << "<a href=\"#the-device\">The device</a></details></nav>\n";
}

void calls(std::ostream& out, const Report& report, const ClauseReport& clause) {
  for (const TestReport& test : report.tests) {
    const auto& about = test.test->clauses;
    if (test.result.calls.empty() || std::find(about.begin(), about.end(), clause.id) == about.end())
      continue;
    if (verdict_of(test.result, clause.id) != Verdict::deviates) continue;
    out << "<p>Calls of " << text(test.test->full_name()) << "</p><pre>";
    for (const std::string& line : test.result.calls) out << escaped(line) << '\n';
    out << "</pre>";
  }
}

void one(std::ostream& out, const Report& report, const ClauseReport& clause) {
  const Clause& c = clause.id.clause();
  const std::string kind = css_class(clause.verdict);
  out << "<details data-v=\"" << (clause.expectation != nullptr ? "EXPECTED" : kind) << "\" data-c=\""
      << text(c.chapter) << "\" data-l=\"" << name_of(c.level) << "\"><summary><span class=\"v "
      << (clause.expectation != nullptr ? "EXPECTED\">EXPECTED"
                                        : kind + "\">" + std::string(name_of(clause.verdict)))
      << "</span><code>" << text(c.id) << "</code></summary><div class=\"in\"><p>" << text(c.promise)
      << "</p><p class=\"dim\">" << text(c.source) << " &middot; " << name_of(c.level)
      << " &middot; applies to " << text(c.applies) << "</p>";
  if (!clause.detail.empty()) out << "<pre>" << escaped(clause.detail) << "</pre>";
  if (clause.expectation != nullptr)
    out << "<p>Known: " << escaped(clause.expectation->reason) << " (" << escaped(clause.expectation->source)
        << ")</p>";
  calls(out, report, clause);
  if (!clause.tests.empty()) {
    out << "<p class=\"dim\">Tests:";
    for (const std::string& test : clause.tests) out << ' ' << escaped(test);
    out << "</p>";
  }
  out << "</div></details>\n";
}

void chapter(std::ostream& out, const Report& report, const Chapter& chapter) {
  std::ostringstream body;
  size_t count = 0, conforms = 0;
  for (const ClauseReport& clause : report.clauses) {
    if (clause.id.clause().chapter != chapter.key) continue;
    ++count;
    conforms += clause.verdict == Verdict::conforms;
    one(body, report, clause);
  }
  out << "<section id=\"" << text(chapter.key) << "\"><h2>" << text(chapter.title) << " <span class=\"dim\">"
      << conforms << " of " << count << "</span></h2>\n"
      << body.str() << "</section>\n";
}

}  // namespace

std::string to_html(const Report& report) {
  std::ostringstream out;
  const std::string name = report.device.empty() ? "?" : report.device.front().second;
  out << page_begin("Verbs conformance of " + name);
  out << "<p class=\"dim\">" << escaped(report.began) << ", " << report.seconds << " s: <code>"
      << escaped(report.command) << "</code></p>\n";
  counts(out, report.summary);
  for (const std::string& id : report.stale)
    out << "<p>Expected deviation that no longer occurs: <code>" << escaped(id) << "</code></p>\n";
  jumps(out);
  filters(out);
  for (const Chapter& c : chapters()) chapter(out, report, c);
  out << "<h2 id=\"the-device\">The device</h2><div class=\"facts\">";
  for (const auto& [key, value] : report.device)
    out << "<div><span class=\"dim\">" << escaped(key) << "</span><span>" << escaped(value)
        << "</span></div>";
  out << "</div>\n" << page_end();
  return out.str();
}

}  // namespace conformance
