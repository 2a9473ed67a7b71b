// SPDX-License-Identifier: BSD-2-Clause
//
// Executes itself again under `verbena run` with a node of its own, and removes the node afterwards.
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "fabric/node.h"

namespace {

constexpr char kInside[] = "VERBENA_CRASH_TEST";

int run_inside(char** arguments) {
  setenv(kInside, "1", 1);
  std::string node = "crash-" + std::to_string(getpid());
  std::vector<char*> line;
  std::string words[] = {VERBENA_COMMAND, "run", "--node", node, "--", "/proc/self/exe"};
  char self[4096] = {};
  if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return 1;
  words[5] = self;
  for (std::string& word : words) line.push_back(word.data());
  for (++arguments; *arguments != nullptr; ++arguments) line.push_back(*arguments);
  line.push_back(nullptr);
  pid_t child;
  int status = 1;
  if (posix_spawn(&child, VERBENA_COMMAND, nullptr, nullptr, line.data(), environ) != 0 ||
      waitpid(child, &status, 0) != child)
    std::perror("cannot start myself under verbena run");
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(verbena::nodes_folder(), error))
    if (entry.path().filename().string().find(node + "-") == 0)
      std::filesystem::remove_all(entry.path(), error);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace

int main(int count, char** arguments) {
  bool lists = false;
  for (int i = 1; i < count; ++i) lists = lists || std::string(arguments[i]) == "--gtest_list_tests";
  if (!lists && getenv(kInside) == nullptr) return run_inside(arguments);
  testing::InitGoogleTest(&count, arguments);
  return RUN_ALL_TESTS();
}
