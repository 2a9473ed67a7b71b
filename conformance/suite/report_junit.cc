// SPDX-License-Identifier: BSD-2-Clause
//
// The report for programs that know JUnit.
#include <sstream>

#include "suite/report.h"

namespace conformance {
namespace {

std::string joined(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += line + '\n';
  return out;
}

}  // namespace

// JUnit has no known deviation: such a test is skipped, with the reasons, and its findings are its output.
std::string to_junit(const Report& report) {
  std::ostringstream out, cases;
  size_t failures = 0, skipped = 0;
  for (const TestReport& test : report.tests) {
    if (test.result.runs == 0) continue;
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
      << report.summary.tests << "\" failures=\"" << failures << "\" skipped=\"" << skipped << "\" time=\""
      << report.seconds << "\">\n"
      << cases.str() << "</testsuite>\n</testsuites>\n";
  return out.str();
}

}  // namespace conformance
