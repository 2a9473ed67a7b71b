// SPDX-License-Identifier: BSD-2-Clause
#include "suite/test.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "suite/child.h"

namespace conformance {
namespace {

std::vector<ClauseId>& scopes() {
  static std::vector<ClauseId> stack;
  return stack;
}

// Of the running test: those that it has come to.
std::vector<ClauseId>& reached() {
  static std::vector<ClauseId> clauses;
  return clauses;
}

std::optional<ClauseId> innermost() {
  if (scopes().empty()) return std::nullopt;
  return scopes().back();
}

std::string list_of(std::initializer_list<int> errors) {
  std::string out;
  for (const int error : errors) out += (out.empty() ? "" : " or ") + errno_text(error);
  return out.empty() ? "an errno value" : out;
}

bool is_allowed(int error, std::initializer_list<int> allowed) {
  return error > 0 &&
         (allowed.size() == 0 || std::find(allowed.begin(), allowed.end(), error) != allowed.end());
}

// A clause was not claimed or not tested, and that has ended the test: those behind it were not tested.
void report_unreached() {
  if (!innermost()) return;  // the finding is about all of them
  const testing::TestInfo& running = *testing::UnitTest::GetInstance()->current_test_info();
  for (const TestInfo& test : tests()) {
    if (test.chapter != running.test_suite_name() || test.name != running.name()) continue;
    for (const ClauseId clause : test.clauses)
      if (std::find(reached().begin(), reached().end(), clause) == reached().end())
        report_finding(Finding::Kind::not_tested, clause, "the test ended before it came to this clause");
  }
}

}  // namespace

std::optional<ClauseId> current_clause() { return innermost(); }

void Test::TestBody() {
  bool has_ended = false;  // at a deviation
  reached().clear();
  try {
    run();
  } catch (const Deviation& deviation) {
    ADD_FAILURE_AT(deviation.where.file_name(), static_cast<int>(deviation.where.line())) << deviation.text;
    has_ended = true;
  } catch (const FarNotClaimed& refusal) {
    report_finding(Finding::Kind::not_tested, innermost(), refusal.reason);
    report_unreached();
  } catch (const NotClaimed& refusal) {
    report_finding(Finding::Kind::not_claimed, innermost(), refusal.reason);
    report_unreached();
  } catch (const NotTested& gap) {
    report_finding(Finding::Kind::not_tested, innermost(), gap.reason);
    report_unreached();
  }
  if (has_ended || HasFatalFailure())
    report_finding(Finding::Kind::not_tested, std::nullopt, "a deviation ended the test");
}

About::About(ClauseId clause) {
  scopes().push_back(clause);
  reached().push_back(clause);
}
About::~About() {
  // An exception that passes through is still about this clause: the base class asks after the unwinding.
  if (std::uncaught_exceptions() == 0) scopes().pop_back();
}

void observe(ClauseId clause, const std::string& what) {
  report_finding(Finding::Kind::observation, clause, what);
}

void not_claimed(const std::string& reason) {
  report_finding(Finding::Kind::not_claimed, innermost(), reason);
}

void not_tested(const std::string& reason) { report_finding(Finding::Kind::not_tested, innermost(), reason); }

std::chrono::milliseconds scaled(std::chrono::milliseconds time) {
  return std::chrono::milliseconds(
      static_cast<int64_t>(static_cast<double>(time.count()) * options().time_scale));
}

void give_way() { std::this_thread::sleep_for(std::chrono::microseconds(20)); }

testing::AssertionResult refused(int result, std::initializer_list<int> allowed) {
  if (is_allowed(result, allowed)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "expected: refused with " << list_of(allowed)
                                     << "; seen: " << (result == 0 ? "success" : result_text(result, errno));
}

testing::AssertionResult refused(const void* result, std::initializer_list<int> allowed) {
  const int error = errno;
  if (result == nullptr && ((allowed.size() == 0 && error == 0) || is_allowed(error, allowed)))
    return testing::AssertionSuccess();
  return testing::AssertionFailure() << "expected: null"
                                     << (allowed.size() == 0 ? "" : " with errno " + list_of(allowed))
                                     << "; seen: " << result_text(result, error);
}

testing::AssertionResult refused_with_errno(const void* result) {
  const int error = errno;
  if (result == nullptr && error > 0) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "expected: null with an errno value; seen: "
                                     << result_text(result, error);
}

testing::AssertionResult succeeded(int result) {
  if (result == 0) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "expected: 0; seen: " << result_text(result, errno);
}

}  // namespace conformance
