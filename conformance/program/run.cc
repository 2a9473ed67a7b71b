// SPDX-License-Identifier: BSD-2-Clause
#include "program/run.h"

#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <memory>
#include <set>
#include <stdexcept>

#include "program/probe.h"
#include "suite/journal.h"
#include "suite/provenance.h"
#include "suite/report_files.h"
#include "suite/runner.h"
#include "suite/sign.h"
#include "suite/test.h"
#include "support/link.h"
#include "support/stack.h"

namespace conformance {
namespace {

// On a terminal one line that changes; elsewhere a line for what does not conform.
void show(const Progress& progress) {
  static const bool terminal = isatty(STDERR_FILENO) == 1;
  const Verdict verdict = verdict_of(*progress.result);
  if (terminal) std::cerr << "\r\033[K";
  if (verdict == Verdict::deviates)
    std::cerr << name_of(verdict) << ' ' << progress.test->full_name() << ": "
              << detail_of(*progress.result, std::nullopt) << '\n';
  if (!terminal) return;
  const double left = static_cast<double>(progress.elapsed.count()) / 1000.0 /
                      static_cast<double>(progress.done) *
                      static_cast<double>(progress.total - progress.done);
  std::cerr << '[' << progress.done << '/' << progress.total << "] ";
  if (progress.round > 1)
    std::cerr << "round " << progress.round << ", ";
  else
    std::cerr << "about " << static_cast<int>(left) + 1 << " s left, ";
  std::cerr << progress.test->full_name() << std::flush;
  if (progress.done == progress.total) std::cerr << "\r\033[K";
}

std::string now() {
  char text[32];
  const time_t seconds = time(nullptr);
  tm parts;
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &parts));
  return text;
}

std::set<std::string> tests_in_vain(const std::vector<const TestInfo*>& selected,
                                    const std::vector<Expectation>& expectations) {
  std::set<size_t> expected;
  for (const Expectation& expectation : expectations) expected.insert(expectation.clause.index());
  std::set<std::string> out;
  for (const TestInfo* test : selected)
    if (std::all_of(test->clauses.begin(), test->clauses.end(),
                    [&](ClauseId id) { return expected.count(id.index()) > 0; }))
      out.insert(test->full_name());
  return out;
}

// The topology, and what the peer says about its device. Throws std::runtime_error when there is no peer, or
// one of another version.
void add_topology(const Options& options, Facts& device, Facts& provenance) {
  device.emplace_back("topology", options.peer.empty() ? "loopback" : "pair with " + options.peer);
  if (options.peer.empty()) return;
  use_options(options);
  try {
    const auto link = StreamLink::to(options.peer, scaled(std::chrono::seconds(10)));
    for (const std::string& fact : link->peer().facts) {
      const size_t equals = fact.find('=');
      if (equals == std::string::npos) continue;
      const bool is_stack = fact.starts_with(stack_prefix);
      const size_t begin = is_stack ? strlen(stack_prefix) : 0;
      (is_stack ? provenance : device)
          .emplace_back("peer_" + fact.substr(begin, equals - begin), fact.substr(equals + 1));
    }
  } catch (const Deviation& deviation) {
    throw std::runtime_error(deviation.text);
  }
}

std::vector<Expectation> expectations_in(const std::string& path) {
  return path.empty() ? std::vector<Expectation>() : read_expectations(path);
}

// After a test that did not do what it should: without its device no other test would tell anything.
void check_device(const Options& options, const Progress& progress) {
  if (verdict_of(*progress.result) != Verdict::deviates) return;
  try {
    probe(options);
  } catch (const std::runtime_error& error) {
    throw Stop{"after " + progress.test->full_name() +
               " the device is gone or does not answer: " + error.what()};
  }
}

void add_header(Report& report, const RunHeader& header) {
  report.provenance = header.provenance;
  report.device = header.device;
  report.command = header.command;
  report.began = header.began;
}

// What `verbs-conformance render` makes of the journal is this report, too.
int finish(const Report& report, const Options& options, Journal* journal) {
  std::cout << to_text(report) << std::flush;
  const std::string path = options.report_dir + "/report.json";
  try {
    if (!options.report_dir.empty()) write_reports(report, options.report_dir);
  } catch (const std::runtime_error& error) {
    const std::string kept = journal == nullptr         ? std::string()
                             : journal->error().empty() ? "; what was found is in " + journal->path()
                                                        : "; what was found first is in " + journal->path();
    throw std::runtime_error(error.what() + kept);
  }
  if (journal != nullptr) journal->remove();
  if (!options.sign.empty()) sign_file(path, options.sign);
  if (report.stopped.empty()) return report.summary.unexpected > 0 ? deviations : ok;
  std::cerr << "verbs-conformance: " << report.stopped
            << (options.report_dir.empty() ? "" : "; what was found is in " + options.report_dir) << '\n';
  return could_not_run;
}

int run(Options options, const std::vector<const TestInfo*>& selected, const std::string& command) {
  const auto expectations = expectations_in(options.expectations);
  options.in_vain = tests_in_vain(selected, expectations);
  for (const Expectation& each : expectations) options.known_deviations.emplace(each.clause.clause().id);
  RunHeader header{provenance(options.seed), {}, command, now(), options.expectations};
  const Probed probed = probe(options);
  choose(probed, options);
  load_provider(probed.provider);
  header.device = probed.device;
  header.provenance.insert(header.provenance.end(), probed.stack.begin(), probed.stack.end());
  add_topology(options, header.device, header.provenance);
  std::unique_ptr<Journal> journal;
  if (!options.report_dir.empty()) journal = std::make_unique<Journal>(options.report_dir, header, selected);
  const auto start = std::chrono::steady_clock::now();
  auto results = run_tests(selected, options, [&](const Progress& progress) {
    show(progress);
    if (journal) journal->add(*progress.test, *progress.result);
    check_device(options, progress);
  });
  const auto time =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start);
  Report report = make_report(selected, std::move(results.tests), expectations);
  add_header(report, header);
  report.seconds = static_cast<double>(time.count()) / 1000.0;
  report.rounds = results.rounds;
  report.stopped = results.stopped;
  return finish(report, options, journal.get());
}

}  // namespace

int run_everywhere(const Options& options, const std::vector<const TestInfo*>& selected,
                   const std::string& command) {
  if (selected.empty()) throw std::runtime_error("no test is selected");
  if (!options.sign.empty()) check_key(options.sign);
  if (!options.all_ports && !options.all_gids) return run(options, selected, command);
  int status = ok;
  for (const Place& place : places(options)) {
    Options at = options;
    at.device = place.device;
    at.port = place.port;
    at.gid_index = place.gid_index;
    const std::string name = "port-" + std::to_string(place.port) + "-gid-" + std::to_string(place.gid_index);
    if (!options.report_dir.empty())
      at.report_dir = (std::filesystem::path(options.report_dir) / name).string();
    std::cout << place.device << ", port " << place.port << ", GID " << place.gid_index << " (" << place.gid
              << ")\n";
    const int one = run(at, selected, command);
    status = std::max(status, one);
    if (one == could_not_run) break;
  }
  return status;
}

int render_journal(const std::string& path, const Options& options) {
  JournalContents journal = read_journal(path);
  const std::string& known =
      options.expectations.empty() ? journal.header.expectations : options.expectations;
  const auto expectations = expectations_in(known);
  Report report = make_report(journal.selected, std::move(journal.results.tests), expectations);
  add_header(report, journal.header);
  report.seconds = journal.seconds;
  report.stopped = journal.results.stopped;
  Options to = options;
  if (to.report_dir.empty()) to.report_dir = std::filesystem::path(path).parent_path().string();
  if (to.report_dir.empty()) to.report_dir = ".";
  return finish(report, to, nullptr);
}

}  // namespace conformance
