// SPDX-License-Identifier: BSD-2-Clause
#include "suite/options.h"

#include <fnmatch.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>

#include "suite/clause.h"

namespace conformance {
namespace {

bool any_pattern(const std::string& patterns, const std::string& name) {
  std::istringstream list(patterns);
  for (std::string pattern; std::getline(list, pattern, ':');)
    if (fnmatch(pattern.c_str(), name.c_str(), 0) == 0) return true;
  return false;
}

int default_jobs() { return static_cast<int>(std::clamp(sysconf(_SC_NPROCESSORS_ONLN), 1L, 4L)); }

void add_commands(CLI::App& app, Options& options) {
  using Command = Options::Command;
  const auto add = [&](const char* name, Command command, const char* what) {
    CLI::App* out = app.add_subcommand(name, what)->fallthrough();
    out->callback([&options, command] { options.command = command; });
    return out;
  };
  CLI::App* compare = add("compare", Command::compare, "Show where the reports of several devices differ");
  compare
      ->add_option("report", options.reports,
                   "report.json of each device; the first is what others are held against")
      ->required()
      ->expected(2, 1000);
  compare->add_option("--html", options.page, "Write the table to this file, too");
  compare
      ->add_option("--verdict", options.verdicts, "Only clauses with one of these on some device (DEVIATES)")
      ->delimiter(',')
      ->check(CLI::IsMember({"CONFORMS", "DEVIATES", "NOT CLAIMED", "NOT TESTED"}, CLI::ignore_case));
  compare->add_option("--level", options.levels, "Only clauses of these levels")
      ->delimiter(',')
      ->check(CLI::IsMember({"must", "should", "choice"}));
  compare->add_flag("--no-regressions", options.no_regressions, "Exit status 1 if a later report is worse");
  CLI::App* history = add("history", Command::history, "Show many reports over time, as one page");
  history->add_option("report", options.reports, "report.json of each run")->required()->expected(1, 10000);
  history->add_option("--html", options.page, "Write the page to this file, too");
  CLI::App* render =
      add("render", Command::render, "Make pages of an old report.json, reports of a report.journal");
  render->add_option("report", options.reports, "report.json or report.journal")->required()->expected(1);
  render->add_option("--html", options.page, "Where the page of a report.json goes (beside it)");
  CLI::App* verify = add("verify", Command::verify, "Check the signature of a report.json");
  verify->add_option("report", options.reports, "report.json, with report.json.sig beside it")
      ->required()
      ->expected(1);
  verify->add_option("--signers", options.signers,
                     "Keys that may have signed: ALLOWED SIGNERS of ssh-keygen(1)");
  verify->add_option("--identity", options.identity, "The signer, as that file names it");
}

// What the options contradict, or null.
const char* fault_of(const Options& options) {
  if (options.signers.empty() != options.identity.empty()) return "--signers and --identity go together";
  if (!options.sign.empty() && options.report_dir.empty())
    return "--sign signs the report.json of --report-dir";
  if (options.repeat > 1 && options.soak > 0) return "either --repeat or --soak";
  if (options.all_ports && options.port != 0) return "either --port or --all-ports";
  if (options.all_gids && options.gid_index >= 0) return "either --gid-index or --all-gids";
  return nullptr;
}

}  // namespace

bool matches(const std::string& filter, const std::string& test_name) {
  const size_t minus = filter.find('-');
  const std::string wanted = filter.substr(0, minus);
  if (!any_pattern(wanted.empty() ? "*" : wanted, test_name)) return false;
  return minus == std::string::npos || !any_pattern(filter.substr(minus + 1), test_name);
}

std::optional<Options> parse_options(int argc, char** argv, int& status) {
  Options options;
  CLI::App app("Checks, clause by clause, what an RDMA device does of what verbs and rdma_cm promise.",
               "verbs-conformance");
  app.set_version_flag("--version", "verbs-conformance " CONFORMANCE_VERSION);
  app.add_option("--device", options.device, "Device to test (first with an active port)");
  app.add_option("--port", options.port, "Port of the device (first active)")->check(CLI::Range(1, 255));
  app.add_option("--gid-index", options.gid_index, "GID to use (chosen from the table)")
      ->check(CLI::Range(0, 65535));
  app.add_option("--filter", options.filter, "Tests by name, as of GoogleTest: mr.*:cq.*-*Overrun*");
  app.add_option("--chapter", options.chapters, "Only these chapters (several, or with commas)")
      ->delimiter(',');
  app.add_flag("--quick", options.quick, "Only the tests that are quick, about 10 s");
  app.add_option("--jobs", options.jobs, "Tests at a time (processors, at most 4)")->check(CLI::Range(1, 64));
  app.add_option("--time-scale", options.time_scale, "Multiplies every time limit, for slow machines")
      ->check(CLI::Range(0.1, 1000.0));
  app.add_option("--expect", options.expectations,
                 "Known deviations (TOML), each with a reason and a source");
  app.add_option("--report-dir", options.report_dir, "Where report.json, report.xml and report.html go");
  app.add_flag("--allow-disruptive", options.allow_disruptive,
               "Also tests that take every QP, CQ and SRQ from other users for a moment");
  app.add_option("--peer", options.peer, "Far ends are at HOST[:PORT], where verbs-conformance --serve runs");
  app.add_flag("--serve", options.serve, "Be the far end of verbs-conformance --peer; runs no test");
  app.add_option("--port-tcp", options.tcp_port, "Where --serve listens (18533; 0: any)")
      ->check(CLI::Range(0, 65535));
  app.add_option("--bind", options.bind, "Address that --serve listens on (all)");
  app.add_flag("--list", options.list, "Show tests and clauses, and run nothing");
  app.add_flag("--audit", options.audit, "Do tests and clauses fit together? (the build asks)")->group("");
  app.add_option("--repeat", options.repeat, "Run all tests N times, and tell how often each deviates")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--soak", options.soak, "Run all tests again and again for so many minutes")
      ->check(CLI::Range(0.0, 100'000.0));
  app.add_option("--seed", options.seed, "Of all that is chosen at random; a report has it");
  app.add_option("--random", options.random, "Instead of the tests: N random programs, held against a model")
      ->check(CLI::Range(1, 1'000'000));
  app.add_flag("--all-ports", options.all_ports, "One run after the other on each active port of the device");
  app.add_flag("--all-gids", options.all_gids, "One run after the other with each GID of the port");
  app.add_option("--sign", options.sign, "Sign report.json with this key of ssh-keygen");
  add_commands(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    status = app.exit(error) == 0 ? 0 : 2;
    return std::nullopt;
  }
  if (const char* fault = fault_of(options)) {
    std::cerr << "verbs-conformance: " << fault << '\n';
    status = 2;
    return std::nullopt;
  }
  for (const std::string& key : options.chapters) {
    if (std::any_of(chapters().begin(), chapters().end(), [&](auto& c) { return c.key == key; })) continue;
    std::cerr << "verbs-conformance: no chapter '" << key << "'; --list shows them\n";
    status = 2;
    return std::nullopt;
  }
  if (options.jobs == 0) options.jobs = default_jobs();
  return options;
}

}  // namespace conformance
