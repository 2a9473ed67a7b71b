// SPDX-License-Identifier: BSD-2-Clause
//
// verbena explain: the rule behind a code of the log, a vendor_err, a status or a finding of `verbena check`,
// and what to do.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <memory>

#include "engine/rules/vendor_error.h"
#include "findings/rules.h"
#include "observe/diagnostic.h"
#include "tool/command.h"
#include "tool/status_notes.h"

namespace verbena::tool {
namespace {

struct ExplainOptions {
  std::string word;
  bool list = false;
};

const VendorErrorText* vendor_error_of(const Diagnostic& diagnostic) {
  for (uint32_t number = 0; diagnostic.is_completion && number <= UINT8_MAX; ++number)
    if (const VendorErrorText* const row = find_vendor_error(number); row->name == diagnostic.code)
      return row;
  return nullptr;
}

std::string headline(const Diagnostic& diagnostic) {
  if (const VendorErrorText* const row = vendor_error_of(diagnostic); row != nullptr)
    return fmt::format("{}: a work request completes with IBV_WC_{}, vendor_err {:#04x}", diagnostic.code,
                       status_word(row->status), static_cast<uint32_t>(row->error));
  if (diagnostic.errors.empty()) return fmt::format("{}: a warning", diagnostic.code);
  return fmt::format("{}: a call is refused ({})", diagnostic.code, diagnostic.errors);
}

std::string text_of(const Diagnostic& diagnostic) {
  return fmt::format("{}\n  rule:   {}\n  source: {}\n  to do:  {}\n", headline(diagnostic), diagnostic.rule,
                     diagnostic.source, diagnostic.remedy);
}

std::string text_of(const findings::Rule& rule) {
  return fmt::format(
      "{}: verbena check reports ({}{}): {}\n  rule:   {}\n  source: {}\n  to do:  {}\n  e.g.:   {}\n",
      rule.id, findings::name_of(rule.level), rule.by_default ? "" : ", with --enable only", rule.title,
      rule.rule, rule.source, rule.remedy, rule.example);
}

// "0x93", "147". False: `word` is no number.
bool read_number(const std::string& word, uint32_t* number) {
  const bool is_hex = word.starts_with("0x") || word.starts_with("0X");
  const char* const begin = word.data() + (is_hex ? 2 : 0);
  const char* const end = word.data() + word.size();
  const auto [rest, error] = std::from_chars(begin, end, *number, is_hex ? 16 : 10);
  return error == std::errc{} && rest == end;
}

bool is_vendor_error(const std::string& word, const Diagnostic& diagnostic) {
  uint32_t number = 0;
  const VendorErrorText* const row = vendor_error_of(diagnostic);
  return row != nullptr && read_number(word, &number) && static_cast<uint32_t>(row->error) == number;
}

// "REM_ACCESS_ERR", with or without IBV_WC_; or the number that programs print, if it is no vendor_err.
bool is_status(std::string word, const Diagnostic& diagnostic) {
  const VendorErrorText* const row = vendor_error_of(diagnostic);
  if (row == nullptr) return false;
  uint32_t number = 0;
  if (read_number(word, &number))
    return find_vendor_error(number)->error == VendorError::none &&
           static_cast<uint32_t>(row->status) == number;
  if (word.starts_with("IBV_WC_")) word.erase(0, 7);
  return status_word(row->status) == word;
}

int explain(const ExplainOptions& options) {
  std::string text;
  for (const Diagnostic& diagnostic : all_diagnostics()) {
    if (options.list)
      text += fmt::format("{:<28} {}\n", diagnostic.code, diagnostic.rule);
    else if (diagnostic.code == options.word || is_vendor_error(options.word, diagnostic) ||
             is_status(options.word, diagnostic))
      text += (text.empty() ? "" : "\n") + text_of(diagnostic);
  }
  for (const findings::Rule& rule : findings::kRules) {
    if (options.list)
      text += fmt::format("{:<28} {}\n", rule.id, rule.title);
    else if (rule.id == options.word)
      text += text_of(rule);
  }
  if (text.empty())
    return failed(fmt::format(
        "{} is no code of the log, no vendor_err, no status and no rule of check: verbena explain --list",
        options.word));
  std::fputs(text.c_str(), stdout);
  return printed();
}

}  // namespace

void add_explain(CLI::App& app, CommandLine& line) {
  CLI::App* command =
      app.add_subcommand("explain", "explain a code of the log, a vendor_err, a status or a rule of check");
  command->footer(
      "With VERBENA_LOG=warn each line of the log ends with its code in brackets.\n\n"
      "Examples:\n"
      "  verbena explain send_queue_full\n"
      "  verbena explain 0x93\n"
      "  verbena explain REM_ACCESS_ERR\n"
      "  verbena explain 12                       a status, as programs print it\n"
      "  verbena explain mr-range                 a finding of verbena check\n"
      "  verbena explain --list");
  auto options = std::make_shared<ExplainOptions>();
  command->add_option("CODE", options->word, "send_queue_full, 0x93, IBV_WC_REM_ACCESS_ERR, mr-range");
  command->add_flag("--list", options->list, "all codes, and the rules of check");
  command->callback([options, &line] {
    if (line.has_tail) throw UsageError{"explain takes no program"};
    if (options->list == !options->word.empty()) throw UsageError{"explain: give one CODE, or --list"};
    line.action = [options] { return explain(*options); };
  });
}

}  // namespace verbena::tool
