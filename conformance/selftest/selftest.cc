// SPDX-License-Identifier: BSD-2-Clause
//
// Does the suite itself work? Tests that pass, fail, crash, hang and abstain are run by the real runner,
// without any device, and their verdicts are compared. A program of its own, as the runner's children run
// GoogleTest.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <tuple>

#include "suite/audit.h"
#include "suite/expectations.h"
#include "suite/family.h"
#include "suite/report.h"
#include "suite/runner.h"
#include "suite/test.h"
#include "support/link.h"

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

std::vector<Expectation> expectations_of(const std::string& text) {
  std::string name = (std::filesystem::temp_directory_path() / "conformance-selftest-XXXXXX")
                         .string();  // mkstemp(3) wants six X
  const int file = mkstemp(name.data());
  if (file < 0) throw std::runtime_error("a file in " + name + ": " + std::strerror(errno));
  close(file);
  std::ofstream(name) << text;
  struct Remove {
    const std::string& name;
    ~Remove() { std::filesystem::remove(name); }
  } remove{name};
  return read_expectations(name);
}

// A known deviation does not count; one that does not occur is reported, unless it need not occur.
int check_expectations(const std::vector<const TestInfo*>& selected, const std::vector<TestResult>& results) {
  const std::string name(first.clause().id);
  const auto entry = [](const std::string& clause, const char* more) {
    return std::string("[[deviation]]\nclause = \"") + clause + "\"\nreason = \"r\"\nsource = \"s\"\n" + more;
  };
  const std::string known = entry(name, ""), known_sometimes = entry(name, "sometimes = true\n");
  const auto report_on = [&](const char* test, const std::string& text) {
    const auto at =
        std::find_if(selected.begin(), selected.end(), [&](const auto* info) { return info->name == test; });
    return make_report({*at}, {results[static_cast<size_t>(at - selected.begin())]}, expectations_of(text));
  };
  const struct {
    const char* test;
    std::string text;
    size_t expected, unexpected, stale;
  } rows[] = {
      {"Fails", "", 0, 2, 0},
      {"Fails", known, 1, 1, 0},
      {"Fails", known_sometimes, 1, 1, 0},
      {"Passes", known, 0, 0, 1},
      {"Passes", known_sometimes, 0, 0, 0},
      {"NotTested", known, 0, 0, 0},
  };
  int faults = 0;
  for (const auto& row : rows) {
    const Report report = report_on(row.test, row.text);
    if (report.summary.expected == row.expected && report.summary.unexpected == row.unexpected &&
        report.stale.size() == row.stale)
      continue;
    std::cerr << row.test << " with\n"
              << row.text << report.summary.expected << " expected, " << report.summary.unexpected
              << " unexpected, " << report.stale.size() << " that no longer occur\n";
    ++faults;
  }
  for (const std::string& bad : {entry("no.such-clause", ""), std::string("[[deviation]]\nclause = \"pd\n"),
                                 "[[deviation]]\nclause = \"" + name + "\"\n"}) {
    try {
      expectations_of(bad);
      std::cerr << "taken for expectations: " << bad;
      ++faults;
    } catch (const std::runtime_error&) {
    }
  }
  return faults;
}

// A message is decoded to itself; each shorter one, and one with a byte more, is refused.
int check_wire() {
  wire::Send sent{7, {{}, {}}};
  sent.list[1].elements = {{-5, 6, 7}, {8, 9}};
  sent.list[1].remote = 0x0102030405060708;
  const std::string bytes = wire::to_bytes(sent);
  const auto is_refused = [](const std::string& message) {
    try {
      wire::from_bytes<wire::Send>(message);
      return false;
    } catch (const wire::Malformed&) {
      return true;
    }
  };
  int faults = wire::to_bytes(wire::from_bytes<wire::Send>(bytes)) != bytes;
  for (size_t length = 0; length < bytes.size(); ++length) faults += !is_refused(bytes.substr(0, length));
  faults += !is_refused(bytes + '\0') + !is_refused(std::string("\7\0\0\0\xff\xff\xff\xff", 8));
  const std::tuple<const char*, const char*, const char*> addresses[] = {
      {"host", "host", "18533"}, {"host:7", "host", "7"}, {"10.0.0.1:", "10.0.0.1", "18533"},
      {"::1", "::1", "18533"},   {"[::1]:7", "::1", "7"}, {"[::1]", "::1", "18533"}};
  for (const auto& [address, host, port] : addresses)
    faults += host_and_port(address) != std::pair<std::string, std::string>(host, port);
  if (faults > 0) std::cerr << faults << " faults of messages and addresses\n";
  return faults;
}

// A family that does not work at all: the test that says so deviates, those that need the family are not run,
// and all others are. Nobody is asked in a run without that test.
int check_families() {
  int faults = 0;
  for (const Family& family : families()) {
    if (ClauseId::find(family.clause)) continue;
    std::cerr << "no clause " << family.clause << '\n';
    ++faults;
  }
  const auto passes = [] {};
  const auto fails = [] { EXPECT_EQ(1, 2); };
  const struct {
    const char* name;
    std::vector<ClauseId> clauses;
    std::function<void()> body;
    Verdict verdict, alone;  // alone: without the first test
  } rows[] = {
      {"Atomics", {"family.atomics"}, fails, Verdict::deviates, Verdict::conforms},
      {"Ud", {"family.ud"}, passes, Verdict::conforms, Verdict::conforms},
      {"Adds", {"atomic.fetch-add.adds"}, passes, Verdict::not_tested, Verdict::conforms},
      {"AddsAndMore",
       {"atomic.fetch-add.adds", "order.completions"},
       passes,
       Verdict::not_tested,
       Verdict::conforms},
      {"AddsTwice",
       {"atomic.fetch-add.adds", "order.fence-atomic"},
       passes,
       Verdict::not_tested,
       Verdict::conforms},
      {"Orders", {"order.completions"}, passes, Verdict::conforms, Verdict::conforms},
      {"OrdersByAtomics",
       {"order.unsignaled"},
       [] { need_family("family.atomics"); },
       Verdict::not_tested,
       Verdict::conforms},
      {"OrdersDatagrams",
       {"order.unsignaled"},
       [] { need_family("family.ud"); },
       Verdict::conforms,
       Verdict::conforms},
  };
  std::vector<TestInfo> infos;
  for (const auto& row : rows)
    infos.push_back({"family",
                     row.name,
                     row.clauses,
                     {},
                     Traits().alone(),
                     __FILE__,
                     __LINE__,
                     [&row]() -> testing::Test* { return new Scripted(row.body); }});
  Options options;
  options.jobs = 2;
  for (const size_t begin : {0, 1}) {
    std::vector<const TestInfo*> selected;
    for (size_t i = begin; i < infos.size(); ++i) selected.push_back(&infos[i]);
    const auto results = run_tests(selected, options, [](const Progress&) {}).tests;
    for (size_t i = 0; i < results.size(); ++i) {
      const auto& row = rows[begin + i];
      const Verdict seen = verdict_of(results[i]), expected = begin == 0 ? row.verdict : row.alone;
      const bool says_why =
          seen != Verdict::not_tested ||
          detail_of(results[i], std::nullopt).find("family.atomics (family.Atomics)") != std::string::npos;
      if (seen == expected && says_why) continue;
      std::cerr << row.name << " of a family: " << name_of(seen) << ", not " << name_of(expected) << "; "
                << results[i].how << '\n';
      ++faults;
    }
  }
  // A family may need another.
  const auto needs = [](std::vector<ClauseId> clauses, std::string_view clause) {
    const TestInfo info{"x", "Y", std::move(clauses), {}, {}, __FILE__, __LINE__, {}};
    const auto all = needed_by(info);
    return std::any_of(all.begin(), all.end(), [&](auto* family) { return family->clause == clause; });
  };
  faults += needs({"ibv_alloc_pd.pointer"}, "family.ud");
  faults += !needs({"ud.grh.ipv4.checksum"}, "family.ud");
  faults += !needs({"family.multicast"}, "family.ud");
  faults += needs({"family.multicast"}, "family.multicast");
  if (faults > 0) std::cerr << faults << " faults of families\n";
  return faults;
}

// The build's audit: a clause without a test is reported, and each way in which a test does not fit its
// clauses.
int check_audit() {
  const auto excused = [](const Clause& clause) {
    return !clause.untestable.empty() || !clause.pending.empty();
  };
  const auto add = [](const char* chapter, const std::string& name, const std::vector<std::string>& ids) {
    register_generated(chapter, name, ids, {}, "here.cc", 7, []() -> testing::Test* { return nullptr; });
  };
  std::vector<std::string> all, expected;
  std::string untestable;
  for (const Clause& clause : clauses())
    if (excused(clause))
      untestable = clause.id;
    else if (clause.id != first.clause().id)
      all.emplace_back(clause.id);
  int faults = 0;
  const auto check = [&] {
    std::vector<std::string> told = audit();
    std::sort(told.begin(), told.end());
    std::sort(expected.begin(), expected.end());
    if (told == expected) return;
    ++faults;
    std::cerr << "the audit tells " << told.size() << " faults, not " << expected.size() << '\n';
    for (size_t i = 0; i < std::min<size_t>(told.size(), 5); ++i) std::cerr << "  " << told[i] << '\n';
  };
  add("pd", "NearlyAll", all);
  expected = {std::string(first.clause().id) + ": a clause without a test (or 'untestable', 'pending')"};
  check();
  add("pd", "TheOther", {std::string(first.clause().id)});
  expected = {};
  check();
  add("pd", "TheOther", {std::string(first.clause().id)});
  add("pd", "None", {});
  add("pd", "Unknown", {"no.such", std::string(first.clause().id)});
  add("nowhere", "Lost", {std::string(first.clause().id)});
  add("pd", "Excused", {untestable});
  expected = {"here.cc:7: pd.TheOther: another test has this name",
              "here.cc:7: pd.None: a test without a clause", "here.cc:7: pd.Unknown: no clause 'no.such'",
              "here.cc:7: nowhere.Lost: no chapter 'nowhere'",
              untestable + ": has a test: take 'untestable' or 'pending' away"};
  check();
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
  const auto results = run_tests(selected, options, [&](const Progress&) { ++told; }).tests;
  int faults = check_combination() + check_wire() + check_families() + check_expectations(selected, results) +
               (told != selected.size());
  for (size_t i = 0; i < results.size(); ++i) faults += check(cases[i], results[i]);
  faults += check_audit();  // registers tests: the last
  std::cout << (faults == 0 ? "the chassis sees" : "the chassis does not see") << '\n';
  return faults == 0 ? 0 : 1;
}
