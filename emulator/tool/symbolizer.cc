// SPDX-License-Identifier: BSD-2-Clause
#include "tool/symbolizer.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <sstream>

extern char** environ;

namespace verbena::tool {
namespace {

// The program's own environment preloads the checker.
std::vector<char*> plain_environment() {
  std::vector<char*> variables;
  for (char** each = environ; *each != nullptr; ++each)
    if (std::string_view(*each).rfind("LD_PRELOAD=", 0) != 0) variables.push_back(*each);
  variables.push_back(nullptr);
  return variables;
}

// What `words` print. "": they cannot be run.
std::string output_of(std::vector<std::string> words) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return "";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<char*> variables = plain_environment();
  pid_t child = -1;
  const int error = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), variables.data());
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n; error == 0 && (n = read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(n));
  close(ends[0]);
  int status;
  if (error == 0) waitpid(child, &status, 0);
  return text;
}

// "prog.c:12 (discriminator 3)"; "??:0" and "prog.c:?" for what is unknown.
void read_place(const std::string& text, CheckFrame* frame) {
  const size_t colon = text.rfind(':', text.find(' '));
  if (colon == std::string::npos || text[0] == '?') return;
  frame->file = text.substr(0, colon);
  frame->line = static_cast<unsigned>(std::strtoul(text.c_str() + colon + 1, nullptr, 10));
}

}  // namespace

// addr2line -a prints each address, then for each function, the inlined ones first, a line with its name and
// one with its place.
void Symbolizer::look_up(const std::string& module, const std::vector<uint64_t>& offsets) {
  std::vector<std::string> words = {"addr2line", "-a", "-f", "-i", "-C", "-e", module};
  for (const uint64_t offset : offsets) {
    char text[32];
    std::snprintf(text, sizeof text, "0x%llx",
                  static_cast<unsigned long long>(offset - 1));  // within the call
    words.push_back(text);
    known_[{module, offset}];
  }
  std::istringstream lines(output_of(words));
  std::vector<CheckFrame>* frames = nullptr;
  size_t next = 0;
  for (std::string name, place; std::getline(lines, name);) {
    if (name.rfind("0x", 0) == 0) {
      frames = next < offsets.size() ? &known_[{module, offsets[next]}] : nullptr;
      ++next;
      continue;
    }
    if (frames == nullptr || !std::getline(lines, place)) return;
    CheckFrame frame{module, offsets[next - 1], name == "??" ? "" : name, "", 0};
    read_place(place, &frame);
    frames->push_back(frame);
  }
}

void Symbolizer::resolve(CheckFinding& finding) {
  std::map<std::string, std::set<uint64_t>> unknown;
  for (const CheckCall& call : finding.calls)
    for (const CheckFrame& frame : call.stack)
      if (!frame.module.empty() && known_.count({frame.module, frame.offset}) == 0)
        unknown[frame.module].insert(frame.offset);
  for (const auto& [module, offsets] : unknown) look_up(module, {offsets.begin(), offsets.end()});
  for (CheckCall& call : finding.calls) {
    std::vector<CheckFrame> resolved;
    for (CheckFrame& frame : call.stack) {
      const std::vector<CheckFrame>& found = known_[{frame.module, frame.offset}];
      const bool is_known =
          !found.empty() && (!found.front().function.empty() || !found.front().file.empty());
      if (is_known)
        resolved.insert(resolved.end(), found.begin(), found.end());
      else
        resolved.push_back(frame);
      if (is_known && found.back().function.empty()) resolved.back().function = frame.function;
      if (resolved.back().function == "main") break;  // libc called it
    }
    call.stack = std::move(resolved);
  }
}

}  // namespace verbena::tool
