// SPDX-License-Identifier: BSD-2-Clause
//
// verbena check: runs a program as `verbena run` does, with the checker between libibverbs and the device
// (provider/check), and prints its findings.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "fabric/temporary_folder.h"
#include "faults/plan.h"
#include "findings/families.h"
#include "findings/variables.h"
#include "tool/check_findings.h"
#include "tool/check_formats.h"
#include "tool/command.h"
#include "tool/environment.h"
#include "tool/output_file.h"
#include "tool/program.h"
#include "tool/suppressions.h"
#include "tool/symbolizer.h"

namespace verbena::tool {
namespace {

constexpr const char* kChecker = "libverbena-check.so";

struct CheckOptions {
  NodeOptions node;
  int error_exitcode = 0;  // 0: the program's
  std::string json, sarif, like;
  std::vector<std::string> suppressions, enabled, disabled;
  bool list = false, quiet = false, generate = false;
};

std::string joined(const std::vector<std::string>& words) {
  std::string list;
  for (const std::string& word : words) list += (list.empty() ? "" : ",") + word;
  return list;
}

void check_ids(const char* option, const std::vector<std::string>& ids) {
  for (const std::string& id : ids)
    if (id != "all" && findings::find_rule(id) == nullptr)
      throw UsageError{std::string(option) + ": there is no rule '" + id + "' (verbena check --list)"};
}

// The file that the programs append to. It is gone when the object is.
class FindingFile {
 public:
  FindingFile() {
    path_ = temporary_folder() + "/verbena-check.XXXXXX";
    fd_ = mkostemp(path_.data(), O_CLOEXEC);
  }
  ~FindingFile() {
    if (fd_ < 0) return;
    close(fd_);
    unlink(path_.c_str());
  }
  FindingFile(const FindingFile&) = delete;
  FindingFile& operator=(const FindingFile&) = delete;

  bool exists() const { return fd_ >= 0; }
  const std::string& path() const { return path_; }
  void read_more(FindingReader& reader) {
    char buffer[65536];
    for (ssize_t n; (n = read(fd_, buffer, sizeof buffer)) > 0;)
      reader.take({buffer, static_cast<size_t>(n)});
  }

 private:
  std::string path_;
  int fd_ = -1;
};

// Prints findings as they come, and keeps them for the reports.
class Reporter {
 public:
  Reporter(const CheckOptions& options, std::vector<Suppression> suppressions)
      : options_(options), suppressions_(std::move(suppressions)) {}

  void take(std::vector<CheckFinding> findings) {
    for (CheckFinding& finding : findings) {
      symbolizer_.resolve(finding);
      if (find_suppression(suppressions_, finding) != nullptr) {
        ++suppressed_;
        continue;
      }
      if (!options_.quiet) std::fputs(text_of(finding).c_str(), stderr);
      if (options_.generate) std::fputs(suppression_of(finding).c_str(), stderr);
      if (!options_.quiet) std::fputc('\n', stderr);
      kept_.push_back(std::move(finding));
    }
  }

  // Writes what was asked for. False: *problem says why not.
  bool finish(std::string* problem) const {
    const auto write = [&](const std::string& path, const std::string& text) {
      return write_text(path, text, problem);
    };
    if (!options_.quiet)
      std::fprintf(stderr, "verbena check: %zu finding%s, %u suppressed\n", kept_.size(),
                   kept_.size() == 1 ? "" : "s", suppressed_);
    return (options_.json.empty() || write(options_.json, json_of(kept_))) &&
           (options_.sarif.empty() || write(options_.sarif, sarif_of(kept_)));
  }

  bool found_any() const { return !kept_.empty(); }

 private:
  const CheckOptions& options_;
  std::vector<Suppression> suppressions_;
  std::vector<CheckFinding> kept_;
  Symbolizer symbolizer_;
  unsigned suppressed_ = 0;
};

// ns. Longer than a call of ibv_post_send under the checker.
constexpr uint64_t kLatencyOfAdapters = 5'000;

// What adapters of the family may do, and this one does not: bytes arrive after the call that posts their
// request, in pieces and in any order. "": nothing, or the program has faults of its own.
std::string plan_like(const std::string& id) {
  const findings::Family* const family = findings::find_family(id);
  if (family == nullptr || !current_environment(faults::kVariable).empty()) return "";
  faults::Plan plan;
  plan.only_legal = true;
  plan.link.latency_ns = kLatencyOfAdapters;
  if (!family->in_order) plan.rules.push_back({.what = faults::Fault::kShuffle});
  return to_text(plan);
}

// Until the program ends: what it finds is printed within a fifth of a second. Returns its exit status.
template <typename Look>
int watch(pid_t child, const sigset_t& signals, Look look) {
  for (;;) {
    const timespec pause = {0, 200'000'000};
    siginfo_t info;
    const int number = sigtimedwait(&signals, &info, &pause);
    if (number > 0 && is_for_program(info)) kill(child, number);
    int status = 0;
    const bool ended = waitpid(child, &status, WNOHANG) == child;
    look();
    if (ended) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
}

int check(const CheckOptions& options, const std::vector<std::string>& program) {
  std::vector<Suppression> suppressions;
  std::string problem;
  for (const std::string& path : options.suppressions)
    if (!read_suppressions(path, &suppressions, &problem)) return failed(problem);
  if (const std::string own = file_beside_command(VERBENA_CHECK_SUPPRESSIONS); !own.empty())
    if (!read_suppressions(own, &suppressions, &problem)) return failed(problem);
  Installation installation;
  std::vector<Variable> environment;
  if (find_installation(&installation, &problem) != 0 ||
      prepare(options.node, getpid(), &environment, &problem) != 0)
    return failed(problem);
  const std::string checker = installation.library_folder + "/" + kChecker;
  if (access(checker.c_str(), R_OK) != 0)  // the loader would go on without it, and nothing would be found
    return failed("no " + checker + ": build all of Verbena, or install its package, verbena");
  if (!can_write(options.json, &problem) || !can_write(options.sarif, &problem)) return failed(problem);
  FindingFile file;
  if (!file.exists())
    return failed("cannot create " + file.path() + ": " + std::strerror(errno) +
                  ": TMPDIR names another folder");
  for (Variable& variable : environment)
    if (variable.name == "LD_PRELOAD") variable.value += ":" + checker;
  environment.push_back({findings::kFileVariable, file.path()});
  environment.push_back({findings::kEnabledVariable, joined(options.enabled)});
  environment.push_back({findings::kDisabledVariable, joined(options.disabled)});
  environment.push_back({findings::kLikeVariable, options.like});
  if (const std::string plan = plan_like(options.like); !plan.empty())
    environment.push_back({faults::kVariable, plan});

  const sigset_t signals = signals_beside_program();
  sigset_t before;
  sigprocmask(SIG_BLOCK, &signals, &before);
  const pid_t child = start(program, environment, false, before);
  if (child < 0) return failed(std::strerror(errno));
  FindingReader reader;
  Reporter reporter(options, std::move(suppressions));
  const int status = watch(child, signals, [&] {
    file.read_more(reader);
    reporter.take(reader.collect());
  });
  reader.end();
  reporter.take(reader.collect());
  const bool was_run = status != kCannotRun && status != kNotFound;
  if (was_run && !reader.saw_device() && !options.quiet)
    std::fprintf(
        stderr,
        "verbena check: no process has opened a device, so nothing was checked: does the program use "
        "verbs? (verbena doctor PROGRAM)\n");
  if (!reporter.finish(&problem)) return failed(problem);
  return reporter.found_any() && options.error_exitcode != 0 ? options.error_exitcode : status;
}

}  // namespace

void add_check(CLI::App& app, CommandLine& line) {
  CLI::App* command =
      app.add_subcommand("check", "run a program and report where it breaks the rules of RDMA");
  command->footer(
      "The exit status is the program's, or --error-exitcode if there are findings. docs/CHECK.md has the "
      "rules.\n\n"
      "Examples:\n"
      "  verbena check -- ./server\n"
      "  verbena check --error-exitcode 9 --sarif check.sarif -- ./test   for CI\n"
      "  verbena check --suppressions known.supp -- ./client\n"
      "  verbena check --list");
  command->prefix_command();
  auto options = std::make_shared<CheckOptions>();
  add_node_options(*command, options->node);
  command->add_option("--error-exitcode", options->error_exitcode, "the exit status if there are findings")
      ->check(CLI::Range(1, 255))
      ->type_name("N");
  command->add_option("--json", options->json, "write the findings as JSON")->type_name("FILE");
  command->add_option("--sarif", options->sarif, "write the findings as SARIF 2.1.0")->type_name("FILE");
  command
      ->add_option("--suppressions", options->suppressions,
                   "findings that are not reported; repeat it for several files")
      ->expected(1)
      ->take_all()
      ->type_name("FILE");
  command->add_flag("--gen-suppressions", options->generate,
                    "print an entry for such a file with each finding");
  command->add_option("--enable", options->enabled, "report this rule, too; repeat it; all: every rule")
      ->expected(1)
      ->take_all()
      ->type_name("ID");
  command->add_option("--disable", options->disabled, "do not report this rule; repeat it")
      ->expected(1)
      ->take_all()
      ->type_name("ID");
  command
      ->add_option("--like", options->like,
                   "report what adapters of this family would refuse; bytes come later, and in any order if "
                   "theirs may")
      ->check(CLI::IsMember({"mlx5", "irdma", "efa", "rxe"}))
      ->type_name("FAMILY");
  command->add_flag("--quiet", options->quiet, "print nothing; for --json and --sarif");
  command->add_flag("--list", options->list, "print all rules, with an example each");
  command->callback([command, options, &line] {
    if (options->list) {
      line.action = [] {
        std::fputs(list_of_rules().c_str(), stdout);
        return printed();
      };
      return;
    }
    check_ids("--enable", options->enabled);
    check_ids("--disable", options->disabled);
    keep_node(*command, options->node);
    check_network_options(options->node);
    const std::vector<std::string> program = program_of(*command, line);
    if (program.empty()) throw UsageError{"check: which program? (verbena check -- PROGRAM ARGUMENTS...)"};
    line.action = [options, program] { return check(*options, program); };
  });
}

}  // namespace verbena::tool
