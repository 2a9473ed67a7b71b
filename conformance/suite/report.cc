// SPDX-License-Identifier: BSD-2-Clause
#include "suite/report.h"

#include <algorithm>
#include <sstream>

namespace conformance {
namespace {

std::vector<ClauseId> in_reading_order() {
  std::vector<ClauseId> out;
  for (size_t i = 0; i < clauses().size(); ++i) out.push_back(ClauseId::at(i));
  std::sort(out.begin(), out.end(),
            [](ClauseId a, ClauseId b) { return a.clause().position < b.clause().position; });
  return out;
}

bool concerns(const TestInfo& test, ClauseId id) {
  return std::find(test.clauses.begin(), test.clauses.end(), id) != test.clauses.end();
}

// The tests that concern a clause: all of them, and those of the run.
struct TestsOfClause {
  std::vector<const TestInfo*> all;
  std::vector<const TestReport*> run;
};

// By ClauseId::index(). A test may name a clause twice.
std::vector<TestsOfClause> tests_by_clause(const std::vector<TestReport>& run) {
  std::vector<TestsOfClause> out(clauses().size());
  const auto add = [](auto& tests, const auto* test) {
    if (tests.empty() || tests.back() != test) tests.push_back(test);
  };
  for (const TestInfo& test : tests())
    for (const ClauseId id : test.clauses) add(out[id.index()].all, &test);
  for (const TestReport& report : run)
    for (const ClauseId id : report.test->clauses) add(out[id.index()].run, &report);
  return out;
}

ClauseReport judge(ClauseId id, const TestsOfClause& tests) {
  ClauseReport out{id, Verdict::not_tested, {}, {}};
  const Clause& clause = id.clause();
  if (!clause.untestable.empty()) {
    out.detail = "untestable: " + std::string(clause.untestable);
    return out;
  }
  if (!clause.pending.empty()) {
    out.detail = "pending: " + std::string(clause.pending);
    return out;
  }
  std::vector<Verdict> verdicts;
  for (const TestReport* test : tests.run) {
    verdicts.push_back(verdict_of(test->result, id));
    const std::string detail = detail_of(test->result, id);
    if (!detail.empty()) out.detail += (out.detail.empty() ? "" : "\n") + test->test->name + ": " + detail;
  }
  size_t left_out = 0;
  for (const TestInfo* test : tests.all) {
    out.tests.push_back(test->full_name());
    left_out += std::none_of(tests.run.begin(), tests.run.end(),
                             [&](const TestReport* r) { return r->test == test; });
  }
  out.verdict = combine(verdicts);
  if (left_out > 0)
    out.detail += (out.detail.empty() ? "" : "\n") + std::to_string(left_out) + " of " +
                  std::to_string(out.tests.size()) + " tests not selected";
  return out;
}

void count(const ClauseReport& clause, Summary& summary) {
  ++summary.clauses;
  switch (clause.verdict) {
    case Verdict::conforms:
      ++summary.conforms;
      break;
    case Verdict::deviates:
      ++summary.deviates;
      ++(clause.expectation != nullptr ? summary.expected : summary.unexpected);
      break;
    case Verdict::not_claimed:
      ++summary.not_claimed;
      break;
    case Verdict::not_tested:
      ++summary.not_tested;
      break;
  }
  summary.untestable += !clause.id.clause().untestable.empty();
  summary.pending += !clause.id.clause().pending.empty();
}

// The length of the character that begins at `at`; 0 if none does. XML has no surrogates, and ends at
// U+10FFFF; overlong encodings are none.
size_t utf8_length(const std::string& text, size_t at) {
  const auto byte = [&](size_t i) {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  const unsigned second = byte(1);
  const bool is_bad = (first == 0xe0 && second < 0xa0) || (first == 0xed && second >= 0xa0) ||
                      (first == 0xf0 && second < 0x90) || (first == 0xf4 && second >= 0x90) ||
                      (first == 0xef && second == 0xbf && byte(2) >= 0xbe);
  return is_bad ? 0 : length;
}

}  // namespace

Report make_report(const std::vector<const TestInfo*>& selected, std::vector<TestResult> results,
                   const std::vector<Expectation>& expectations) {
  Report report;
  for (size_t i = 0; i < selected.size(); ++i) {
    const Verdict verdict = verdict_of(results[i]);
    report.tests.push_back({selected[i], std::move(results[i]), verdict});
  }
  const std::vector<TestsOfClause> by_clause = tests_by_clause(report.tests);
  for (const ClauseId id : in_reading_order()) {
    ClauseReport clause = judge(id, by_clause[id.index()]);
    for (const Expectation& expectation : expectations) {
      if (expectation.clause != id) continue;
      if (clause.verdict == Verdict::deviates)
        clause.expectation = &expectation;
      else if (clause.verdict != Verdict::not_tested && !expectation.sometimes)
        report.stale.emplace_back(id.clause().id);
    }
    count(clause, report.summary);
    report.clauses.push_back(std::move(clause));
  }
  report.summary.tests = static_cast<size_t>(std::count_if(report.tests.begin(), report.tests.end(),
                                                           [](auto& test) { return test.result.runs > 0; }));
  return report;
}

std::vector<const Expectation*> expectations_of(const Report& report, const TestReport& test) {
  std::vector<const Expectation*> out;
  for (const ClauseReport& clause : report.clauses) {
    if (!concerns(*test.test, clause.id) || verdict_of(test.result, clause.id) != Verdict::deviates) continue;
    if (clause.expectation == nullptr) return {};
    out.push_back(clause.expectation);
  }
  return out;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (size_t at = 0, length; at < text.size(); at += std::max<size_t>(length, 1)) {
    const char c = text[at];
    length = utf8_length(text, at);
    if (length == 0)
      out += "\xef\xbf\xbd";
    else if (length > 1)
      out.append(text, at, length);
    else if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += static_cast<unsigned char>(c) < 32 && c != '\n' && c != '\t' ? ' ' : c;
  }
  return out;
}

std::string to_text(const Report& report) {
  std::ostringstream out;
  for (const ClauseReport& clause : report.clauses) {
    if (clause.verdict != Verdict::deviates) continue;
    out << (clause.expectation != nullptr ? "expected " : "") << "DEVIATES " << clause.id.clause().id << " ("
        << clause.id.clause().source << ")\n  promised: " << clause.id.clause().promise << "\n  ";
    for (const char c : clause.detail) out << c << (c == '\n' ? "  " : "");
    out << '\n';
    if (clause.expectation != nullptr) out << "  known: " << clause.expectation->reason << '\n';
  }
  for (const std::string& id : report.stale)
    out << "expected deviation no longer occurs: " << id << " (take it out of the expectations)\n";
  const Summary& s = report.summary;
  out << s.clauses << " clauses: " << s.conforms << " CONFORMS, " << s.deviates << " DEVIATES (" << s.expected
      << " expected), " << s.not_claimed << " NOT CLAIMED, " << s.not_tested << " NOT TESTED (" << s.pending
      << " pending, " << s.untestable << " untestable); " << s.tests << " tests in " << report.seconds
      << " s\n";
  return out.str();
}

}  // namespace conformance
