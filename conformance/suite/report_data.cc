// SPDX-License-Identifier: BSD-2-Clause
//
// The report for programs: JSON and JUnit XML.
#include <nlohmann/json.hpp>
#include <sstream>

#include "suite/report.h"

namespace conformance {
namespace {

using Json = nlohmann::ordered_json;

Json device_of(const Report& report) {
  Json device = Json::object();
  for (const auto& [name, value] : report.device) device[name] = value;
  return device;
}

Json summary_of(const Summary& s) {
  return {{"clauses", s.clauses},
          {"conforms", s.conforms},
          {"deviates", s.deviates},
          {"not_claimed", s.not_claimed},
          {"not_tested", s.not_tested},
          {"pending", s.pending},
          {"untestable", s.untestable},
          {"expected_deviations", s.expected},
          {"unexpected_deviations", s.unexpected},
          {"tests", s.tests}};
}

Json clause_of(const ClauseReport& report) {
  const Clause& clause = report.id.clause();
  Json out = {{"id", clause.id},
              {"chapter", clause.chapter},
              {"level", name_of(clause.level)},
              {"promise", clause.promise},
              {"source", clause.source},
              {"applies", clause.applies},
              {"seen_in", clause.seen_in},
              {"verdict", name_of(report.verdict)},
              {"tests", report.tests},
              {"detail", report.detail}};
  if (report.expectation != nullptr)
    out["expected"] = {{"reason", report.expectation->reason}, {"source", report.expectation->source}};
  return out;
}

Json test_of(const TestReport& report) {
  Json out = {{"name", report.test->full_name()},
              {"verdict", name_of(report.verdict)},
              {"milliseconds", report.result.time.count()},
              {"clauses", Json::array()},
              {"detail", detail_of(report.result, std::nullopt)}};
  for (const ClauseId id : report.test->clauses) out["clauses"].push_back(id.clause().id);
  if (report.verdict == Verdict::deviates) out["calls"] = report.result.calls;
  return out;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += line + '\n';
  return out;
}

}  // namespace

std::string to_json(const Report& report) {
  Json out = {{"schema", "verbs-conformance/1"},
              {"device", device_of(report)},
              {"summary", summary_of(report.summary)},
              {"clauses", Json::array()}};
  for (const ClauseReport& clause : report.clauses) out["clauses"].push_back(clause_of(clause));
  out["tests"] = Json::array();
  for (const TestReport& test : report.tests) out["tests"].push_back(test_of(test));
  out["chapters"] = Json::array();
  for (const Chapter& chapter : chapters())
    out["chapters"].push_back({{"key", chapter.key}, {"title", chapter.title}});
  out["stale_expectations"] = report.stale;
  out["run"] = {{"command", report.command}, {"began", report.began}, {"seconds", report.seconds}};
  return out.dump(1, ' ', false, Json::error_handler_t::replace) + '\n';
}

// JUnit has no known deviation: such a test is skipped, with the reasons, and its findings are its output.
std::string to_junit(const Report& report) {
  std::ostringstream out, cases;
  size_t failures = 0, skipped = 0;
  for (const TestReport& test : report.tests) {
    cases << "<testcase classname=\"" << escaped(test.test->chapter) << "\" name=\""
          << escaped(test.test->name) << "\" time=\""
          << static_cast<double>(test.result.time.count()) / 1000.0 << "\">";
    const std::string detail = escaped(detail_of(test.result, std::nullopt));
    const std::string calls = escaped(joined(test.result.calls));
    const auto expected = expectations_of(report, test);
    const bool fails = test.verdict == Verdict::deviates && expected.empty();
    failures += fails;
    skipped += !fails && test.verdict != Verdict::conforms;
    if (fails) {
      cases << "<failure message=\"DEVIATES\">" << detail << "\n\n" << calls << "</failure>";
    } else if (test.verdict == Verdict::deviates) {
      std::string reasons;
      for (const Expectation* one : expected)
        if (reasons.find(one->reason) == std::string::npos)
          reasons += (reasons.empty() ? "" : "; ") + one->reason;
      cases << "<skipped message=\"expected to deviate: " << escaped(reasons) << "\"/><system-out>" << detail
            << "\n\n"
            << calls << "</system-out>";
    } else if (test.verdict != Verdict::conforms) {
      cases << "<skipped message=\"" << name_of(test.verdict) << ": " << detail << "\"/>";
    }
    cases << "</testcase>\n";
  }
  out << "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite name=\"verbs-conformance\" "
         "tests=\""
      << report.tests.size() << "\" failures=\"" << failures << "\" skipped=\"" << skipped << "\" time=\""
      << report.seconds << "\">\n"
      << cases.str() << "</testsuite>\n</testsuites>\n";
  return out.str();
}

}  // namespace conformance
