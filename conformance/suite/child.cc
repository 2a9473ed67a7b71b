// SPDX-License-Identifier: BSD-2-Clause
#include "suite/child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "suite/test.h"

namespace conformance {

std::optional<ClauseId> current_clause();  // test.cc

namespace {

// A finding is kind, index of the clause or '-', text, each ended by a unit separator; then a record
// separator. An end mark is the kind 'E' alone.
constexpr char unit = '\x1f', record = '\x1e';

int sink = -1;
const Options* current_options = nullptr;

void send(const std::string& bytes) {
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t count = write(sink, bytes.data() + sent, bytes.size() - sent);
    if (count <= 0) return;
    sent += static_cast<size_t>(count);
  }
}

std::string base_name(const char* path) {
  const std::string text = path == nullptr ? "" : path;
  return text.substr(text.rfind('/') + 1);
}

class Listener : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& part) override {
    if (!part.failed()) return;
    report_finding(
        Finding::Kind::deviation, current_clause(),
        base_name(part.file_name()) + ":" + std::to_string(part.line_number()) + ": " + part.message());
  }
};

}  // namespace

const Options& options() { return *current_options; }
void use_options(const Options& options) { current_options = &options; }

void report_finding(Finding::Kind kind, std::optional<ClauseId> about, const std::string& text) {
  std::string line(1, static_cast<char>(kind));
  line += unit;
  line += about ? std::to_string(about->index()) : "-";
  line += unit;
  for (const char c : text) line += c == unit || c == record ? ' ' : c;
  line += unit;
  send(line + record);
}

void read_findings(const std::string& bytes, TestResult& result) {
  for (size_t at = 0, end; (end = bytes.find(record, at)) != std::string::npos; at = end + 1) {
    const std::string line = bytes.substr(at, end - at);
    if (line == "E") {
      result.end = TestResult::End::finished;
      continue;
    }
    const size_t first = line.find(unit), second = line.find(unit, first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    Finding finding{static_cast<Finding::Kind>(line[0]), std::nullopt,
                    line.substr(second + 1, line.size() - second - 2)};
    const std::string index = line.substr(first + 1, second - first - 1);
    if (index != "-") finding.about = ClauseId::at(std::strtoul(index.c_str(), nullptr, 10));
    result.findings.push_back(std::move(finding));
  }
}

void run_in_child(const TestInfo& test, const Options& options, Trace& trace, int descriptor) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  sink = descriptor;
  // For a driver that keeps a record (tests/mutants).
  setenv("CONFORMANCE_TEST", test.full_name().c_str(), 1);
  static Options own;  // of this process
  own = options;
  if (own.in_vain.count(test.full_name()) > 0) own.time_scale = std::min(own.time_scale, 1.0);
  use_options(own);
  use_trace(&trace);
  // Output of the device's driver is discarded unless it is asked for: the report is the suite's output.
  if (getenv("CONFORMANCE_VERBOSE") == nullptr) {
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(nowhere, STDOUT_FILENO);
    dup2(nowhere, STDERR_FILENO);
    close(nowhere);
  }
  testing::GTEST_FLAG(catch_exceptions) = true;
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new Listener);
  testing::RegisterTest(test.chapter.c_str(), test.name.c_str(), nullptr, nullptr, test.file, test.line,
                        [&]() -> testing::Test* { return test.make(); });
  const int failed = RUN_ALL_TESTS();
  send(std::string("E") + record);
  _exit(failed == 0 ? 0 : 1);
}

}  // namespace conformance
