// SPDX-License-Identifier: BSD-2-Clause
#include "run.h"

#include <sys/wait.h>

#include <cstdio>
#include <fstream>
#include <sstream>

namespace verbena::testing {

Outcome run(const std::string& command) {
  std::string quoted;
  for (const char c : command) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  FILE* pipe = popen(("timeout 60 sh -c '" + quoted + "' 2>&1").c_str(), "re");
  if (pipe == nullptr) return {-1, "popen failed"};
  Outcome outcome{0, ""};
  char buffer[4096];
  for (size_t size; (size = fread(buffer, 1, sizeof buffer, pipe)) > 0;) outcome.output.append(buffer, size);
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

std::string contents(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace verbena::testing
