// SPDX-License-Identifier: BSD-2-Clause
//
// The command `verbena`.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tool/command.h"

namespace {

using verbena::tool::CommandLine;

// `command`: the subcommand whose help has more; "": none.
int usage(std::string message, const std::string& command) {
  for (char& c : message)  // the user's words may contain control characters
    if (static_cast<unsigned char>(c) < ' ') c = '?';
  std::fprintf(stderr, "verbena: %s (see verbena %s%s--help)\n", message.c_str(), command.c_str(),
               command.empty() ? "" : " ");
  return verbena::tool::kUsage;
}

// Options may be followed by a program, which CLI11 does not know.
class HelpText : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* app, std::string name) const override {
    std::string line = CLI::Formatter::make_usage(app, std::move(name));
    if (!app->get_prefix_command()) return line;
    while (!line.empty() && line.back() == '\n') line.pop_back();
    const bool is_needed = app->get_name() == "run" || app->get_name() == "check";
    return line + (is_needed ? " [--] PROGRAM [ARGUMENTS...]\n" : " [[--] PROGRAM [ARGUMENTS...]]\n");
  }
};

// The first word that is no option: the name of a subcommand, or what was taken for one.
std::string first_word(int argc, char** argv) {
  for (int i = 1; i < argc && std::string_view(argv[i]) != "--"; ++i)
    if (argv[i][0] != '-') return argv[i];
  return "";
}

std::string names_of_commands(const CLI::App& app) {
  std::string names;
  for (const CLI::App* command :
       app.get_subcommands([](const CLI::App* each) { return !each->get_group().empty(); }))
    names += (names.empty() ? "" : ", ") + command->get_name();
  return names;
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
  app.formatter(std::make_shared<HelpText>());
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
  const std::string word = first_word(argc, argv);
  const bool is_command =
      !app.get_subcommands([&word](const CLI::App* each) { return each->get_name() == word; }).empty();
  const std::string command = is_command ? word : "";
  try {
    app.parse(take_words(argc, argv, line));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help, --version
      app.exit(error);
      return std::cout.flush() ? 0 : verbena::tool::failed("cannot write to standard output");
    }
    if (is_command) return usage(error.what(), command);
    if (argc > 1 && argv[1][0] == '-' && argv[1] != std::string_view("--"))
      return usage("there is no option '" + std::string(argv[1]) + "' before the command", "");
    return usage((word.empty() ? "which command? " : "there is no command '" + word + "'; there are ") +
                     names_of_commands(app),
                 "");
  } catch (const verbena::tool::UsageError& error) {
    return usage(error.message, command);
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
