// SPDX-License-Identifier: BSD-2-Clause
#include "tool/suppressions.h"

#include <errno.h>
#include <fnmatch.h>

#include <cstring>
#include <fstream>

namespace verbena::tool {
namespace {

constexpr const char* kTool = "verbena:";
constexpr size_t kFramesOfSample = 8;

std::string trimmed(const std::string& line) {
  const size_t begin = line.find_first_not_of(" \t\r");
  return begin == std::string::npos ? "" : line.substr(begin, line.find_last_not_of(" \t\r") + 1 - begin);
}

bool begins(const std::string& text, const char* with) { return text.rfind(with, 0) == 0; }

bool matches(const std::string& pattern, const std::string& text) {
  return fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
}

bool matches_frame(const std::string& wanted, const CheckFrame& frame) {
  const std::string pattern = wanted.substr(4);
  if (begins(wanted, "fun:")) return matches(pattern, frame.function);
  if (begins(wanted, "obj:")) return matches(pattern, frame.module);
  return matches(pattern, frame.file) || matches(pattern, frame.file.substr(frame.file.rfind('/') + 1));
}

bool matches_stack(const std::vector<std::string>& wanted, size_t i, const std::vector<CheckFrame>& stack,
                   size_t at) {
  if (i == wanted.size()) return true;
  if (wanted[i] == "...") {
    for (size_t next = at; next <= stack.size(); ++next)
      if (matches_stack(wanted, i + 1, stack, next)) return true;
    return false;
  }
  return at < stack.size() && matches_frame(wanted[i], stack[at]) &&
         matches_stack(wanted, i + 1, stack, at + 1);
}

bool is_frame(const std::string& line) {
  return line == "..." || begins(line, "fun:") || begins(line, "obj:") || begins(line, "src:");
}

}  // namespace

bool read_suppressions(const std::string& path, std::vector<Suppression>* out, std::string* problem) {
  std::ifstream file(path);
  if (!file) {
    *problem = "cannot read the suppressions in " + path + ": " + std::strerror(errno);
    return false;
  }
  unsigned number = 0;
  const auto fail = [&](const char* what) {
    *problem = path + ":" + std::to_string(number) + ": " + what;
    return false;
  };
  std::vector<std::string> entry;
  bool within = false;
  for (std::string line; std::getline(file, line);) {
    ++number;
    line = trimmed(line);
    if (line.empty() || line[0] == '#') continue;
    if (line == "{") {
      if (within) return fail("a '{' within an entry");
      within = true;
      entry.clear();
    } else if (line == "}") {
      if (!within || entry.size() < 2) return fail("an entry has a name and a rule at least");
      within = false;
      if (!begins(entry[1], kTool)) continue;
      Suppression made{entry[1].substr(std::string(kTool).size()), {entry.begin() + 2, entry.end()}};
      for (const std::string& frame : made.frames)
        if (!is_frame(frame)) return fail("a frame is fun:, obj:, src: or ...");
      out->push_back(std::move(made));
    } else if (!within) {
      return fail("'{' begins an entry");
    } else {
      entry.push_back(line);
    }
  }
  return !within || fail("the last entry has no '}'");
}

const Suppression* find_suppression(const std::vector<Suppression>& all, const CheckFinding& finding) {
  static const std::vector<CheckFrame> kNone;
  const std::vector<CheckFrame>& stack = finding.calls.empty() ? kNone : finding.calls.front().stack;
  for (const Suppression& each : all) {
    if (matches(each.rule, std::string(finding.rule->id)) && matches_stack(each.frames, 0, stack, 0))
      return &each;
  }
  return nullptr;
}

std::string suppression_of(const CheckFinding& finding) {
  std::string text =
      "{\n  " + std::string(finding.rule->title) + "\n  " + kTool + std::string(finding.rule->id) + "\n";
  if (finding.calls.empty()) return text + "}\n";
  const std::vector<CheckFrame>& stack = finding.calls.front().stack;
  for (size_t i = 0; i < stack.size() && i < kFramesOfSample; ++i)
    text +=
        stack[i].function.empty() ? "  obj:" + stack[i].module + "\n" : "  fun:" + stack[i].function + "\n";
  return text + "}\n";
}

}  // namespace verbena::tool
