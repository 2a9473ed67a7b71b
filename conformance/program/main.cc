// SPDX-License-Identifier: BSD-2-Clause
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <stdexcept>

#include "peer/serve.h"
#include "program/probe.h"
#include "program/run.h"
#include "suite/audit.h"
#include "suite/compare.h"
#include "suite/history.h"
#include "suite/journal.h"
#include "suite/options.h"
#include "suite/report_files.h"
#include "suite/report_page.h"
#include "suite/sign.h"

using namespace conformance;

namespace {

int print_audit() {
  const auto faults = audit();
  for (const std::string& fault : faults) std::cerr << fault << '\n';
  return faults.empty() ? ok : could_not_run;
}

std::vector<const TestInfo*> select(const Options& options) {
  std::vector<const TestInfo*> selected;
  for (const TestInfo& test : tests()) {
    const auto& wanted = options.chapters;
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), test.chapter) == wanted.end()) continue;
    if (options.quick && test.traits.is_slow) continue;
    if (test.traits.is_disruptive && !options.allow_disruptive) continue;
    if (matches(options.filter, test.full_name())) selected.push_back(&test);
  }
  return selected;
}

int print_list(const std::vector<const TestInfo*>& selected) {
  for (const TestInfo* test : selected) {
    std::cout << test->full_name() << (test->traits.is_slow ? " [slow]" : "");
    for (const ClauseId id : test->clauses) std::cout << "\n    " << id.clause().id;
    std::cout << '\n';
  }
  size_t pending = 0, untestable = 0;
  for (const Clause& clause : clauses()) {
    pending += !clause.pending.empty();
    untestable += !clause.untestable.empty();
  }
  std::cout << selected.size() << " tests selected; " << clauses().size() << " clauses in all, " << pending
            << " pending, " << untestable << " untestable; chapters:";
  for (const Chapter& chapter : chapters()) std::cout << ' ' << chapter.key;
  std::cout << '\n';
  return ok;
}

int compare(const Options& options) {
  const Comparison comparison =
      compare_reports(options.reports, {options.verdicts, options.levels, options.chapters});
  std::cout << to_text(comparison);
  if (!options.page.empty()) write_file(options.page, to_html(comparison));
  return options.no_regressions && comparison.is_worse() ? deviations : ok;
}

int show_history(const Options& options) {
  const History history = history_of(options.reports);
  std::cout << to_text(history);
  if (!options.page.empty()) write_file(options.page, to_html(history));
  return ok;
}

// Of a report the page; of a journal, which an interrupted run left, all that a run writes.
int render(const Options& options) {
  const std::string& path = options.reports.front();
  if (is_journal(path)) return render_journal(path, options);
  const Document document = read_document(path);
  const std::string page =
      !options.page.empty() ? options.page : std::filesystem::path(path).replace_extension(".html").string();
  write_file(page, to_html(document));
  std::cout << page << '\n';
  return ok;
}

// Without a device it serves, too: the clients are told of it.
int serve_with_provider(const Options& options) {
  try {
    load_provider(probe(options).provider);
  } catch (const std::exception&) {
  }
  serve(options);
  return ok;
}

int verify(const Options& options) {
  return verify_file(options.reports.front(), options.signers, options.identity) ? ok : deviations;
}

}  // namespace

int main(int argc, char** argv) {
  int status = ok;
  std::optional<Options> options = parse_options(argc, argv, status);
  if (!options) return status;
  std::string command = "verbs-conformance";
  for (int i = 1; i < argc; ++i) command += std::string(" ") + argv[i];
  using Command = Options::Command;
  try {
    if (options->audit) return print_audit();
    if (options->command == Command::compare) return compare(*options);
    if (options->command == Command::history) return show_history(*options);
    if (options->command == Command::render) return render(*options);
    if (options->command == Command::verify) return verify(*options);
    if (options->serve) return serve_with_provider(*options);
    if (options->list) return print_list(select(*options));
    return run_everywhere(*options, select(*options), command);
  } catch (const std::exception& error) {
    std::cerr << "verbs-conformance: " << error.what() << '\n';
    return could_not_run;
  }
}
