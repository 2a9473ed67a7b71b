// SPDX-License-Identifier: BSD-2-Clause
//
// Does the chassis see? Tests that pass, fail, crash, hang and abstain are run by the real runner, without
// any device, and their verdicts are compared. A program of its own, as the runner's children run GoogleTest.
#include <signal.h>
#include <unistd.h>

#include <functional>
#include <iostream>
#include <memory>

#include "suite/report.h"
#include "suite/runner.h"
#include "suite/test.h"

using namespace conformance;

namespace {

class Scripted final : public Test {
 public:
  explicit Scripted(std::function<void()> body) : body_(std::move(body)) {}

 private:
  void run() override { body_(); }
  std::function<void()> body_;
};

constexpr ClauseId first = "ibv_alloc_pd.pointer", second = "ibv_dealloc_pd.zero";

struct Case {
  const char* name;
  std::function<void()> body;
  TestResult::End end;
  Verdict of_first, of_second;
  const char* detail;  // must be part of what is said
};

const Case cases[] = {
    {"Passes", [] { EXPECT_EQ(1, 1); }, TestResult::End::finished, Verdict::conforms, Verdict::conforms, ""},
    {"Fails", [] { EXPECT_EQ(1, 2); }, TestResult::End::finished, Verdict::deviates, Verdict::deviates,
     "selftest.cc"},
    {"FailsAboutOne",
     [] {
       const About about("ibv_dealloc_pd.zero");
       EXPECT_EQ(1, 2);
     },
     TestResult::End::finished, Verdict::conforms, Verdict::deviates, ""},
    {"ThrowsWithinAScope",
     [] {
       const About about("ibv_dealloc_pd.zero");
       throw NotClaimed{"no such thing"};
     },
     TestResult::End::finished, Verdict::conforms, Verdict::not_claimed, "no such thing"},
    {"NotClaimedAfterAFailure",
     [] {
       EXPECT_TRUE(false);
       throw NotClaimed{"no such thing"};
     },
     TestResult::End::finished, Verdict::deviates, Verdict::deviates, ""},
    {"NotTested", [] { throw NotTested{"the machine lacks it"}; }, TestResult::End::finished,
     Verdict::not_tested, Verdict::not_tested, "lacks"},
    {"Deviates",
     [] {
       throw Deviation{"expected: 1; seen: 2", Where::current()};
     },
     TestResult::End::finished, Verdict::deviates, Verdict::deviates, "expected: 1; seen: 2"},
    {"Crashes",
     [] {
       CALL(getpid());
       raise(SIGSEGV);
     },
     TestResult::End::crashed, Verdict::deviates, Verdict::deviates, "getpid()"},
    {"Exits", [] { _exit(0); }, TestResult::End::crashed, Verdict::deviates, Verdict::deviates, "status 0"},
    {"Hangs", [] { CALL(pause()); }, TestResult::End::hung, Verdict::deviates, Verdict::deviates, "pause()"},
    {"LeavesAChildBehind",
     [] {
       if (fork() == 0) pause();
     },
     TestResult::End::finished, Verdict::conforms, Verdict::conforms, ""},
    {"PassesAfterAll", [] { EXPECT_EQ(1, 1); }, TestResult::End::finished, Verdict::conforms,
     Verdict::conforms, ""},
};

int check(const Case& expected, const TestResult& result) {
  const std::string detail = detail_of(result, std::nullopt);
  if (result.end == expected.end && verdict_of(result, first) == expected.of_first &&
      verdict_of(result, second) == expected.of_second && detail.find(expected.detail) != std::string::npos)
    return 0;
  std::cerr << expected.name << ": end " << static_cast<int>(result.end) << ", "
            << name_of(verdict_of(result, first)) << " and " << name_of(verdict_of(result, second)) << ": "
            << detail << '\n';
  return 1;
}

int check_combination() {
  using V = Verdict;
  const std::pair<std::vector<V>, V> rows[] = {
      {{}, V::not_tested},
      {{V::conforms, V::conforms}, V::conforms},
      {{V::conforms, V::not_claimed}, V::conforms},
      {{V::conforms, V::not_tested}, V::not_tested},  // a skip is never a pass
      {{V::not_claimed}, V::not_claimed},
      {{V::conforms, V::not_tested, V::deviates}, V::deviates},
  };
  int faults = 0;
  for (const auto& [verdicts, expected] : rows) {
    if (combine(verdicts) == expected) continue;
    std::cerr << "combine gives " << name_of(combine(verdicts)) << ", not " << name_of(expected) << '\n';
    ++faults;
  }
  return faults;
}

}  // namespace

int main() {
  std::vector<TestInfo> infos;
  for (const Case& c : cases)
    infos.push_back(
        {"pd", c.name, {first, second}, {}, Traits().limit(2), __FILE__, __LINE__, [&c]() -> testing::Test* {
           return new Scripted(c.body);
         }});
  std::vector<const TestInfo*> selected;
  for (const TestInfo& info : infos) selected.push_back(&info);
  Options options;
  options.jobs = 2;
  size_t told = 0;
  const auto results = run_tests(selected, options, [&](const Progress&) { ++told; });
  int faults = check_combination() + (told != selected.size());
  for (size_t i = 0; i < results.size(); ++i) faults += check(cases[i], results[i]);
  std::cout << (faults == 0 ? "the chassis sees" : "the chassis does not see") << '\n';
  return faults == 0 ? 0 : 1;
}
