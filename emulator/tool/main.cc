// SPDX-License-Identifier: BSD-2-Clause
//
// The command `verbena`.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "tool/command.h"

namespace {

using verbena::tool::CommandLine;

int usage(std::string message) {
  for (char& c : message)  // the user's words may contain control characters
    if (static_cast<unsigned char>(c) < ' ') c = '?';
  std::fprintf(stderr, "verbena: %s (see verbena --help)\n", message.c_str());
  return verbena::tool::kUsage;
}

// The words before the first "--", in the order that CLI11 needs: the last one first. The others go to
// line.tail.
std::vector<std::string> take_words(int argc, char** argv, CommandLine& line) {
  std::vector<std::string> words;
  for (int i = 1; i < argc; ++i) {
    if (line.has_tail)
      line.tail.emplace_back(argv[i]);
    else if (std::string_view(argv[i]) == "--")
      line.has_tail = true;
    else
      words.insert(words.begin(), argv[i]);
  }
  return words;
}

int dispatch(int argc, char** argv) {
  CLI::App app{"RDMA without a NIC: runs unmodified verbs programs on an adapter made of software",
               "verbena"};
  app.set_version_flag("--version", "verbena " VERBENA_VERSION);
  app.set_help_flag("-h,--help", "print this help");
  app.require_subcommand(1);
  app.footer(
      "Examples:\n"
      "  verbena run -- ibv_devinfo       what a program sees\n"
      "  verbena run -- PROGRAM           run any verbs program, server and client alike\n"
      "  verbena check -- PROGRAM         the same, and report its mistakes\n"
      "  eval \"$(verbena env)\"            the same for everything in this shell\n"
      "`verbena COMMAND --help` says more about each.");
  CommandLine line;
  verbena::tool::add_run(app, line);
  verbena::tool::add_check(app, line);
  verbena::tool::add_env(app, line);
  verbena::tool::add_status(app, line);
  verbena::tool::add_capture(app, line);
  verbena::tool::add_trace(app, line);
  verbena::tool::add_explain(app, line);
  verbena::tool::add_top(app, line);
  verbena::tool::add_metrics(app, line);
  verbena::tool::add_event(app, line);
  verbena::tool::add_doctor(app, line);
  verbena::tool::add_probe(app, line);
  verbena::tool::add_key(app, line);
  verbena::tool::add_clean(app, line);
  try {
    app.parse(take_words(argc, argv, line));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return usage(error.what());
  } catch (const verbena::tool::UsageError& error) {
    return usage(error.message);
  }
  return line.action();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return dispatch(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "verbena: %s\n", error.what());
    return verbena::tool::kFailed;
  }
}
