// SPDX-License-Identifier: BSD-2-Clause
//
// Executes itself again with the preload and a node of its own, so that the tests run where a program runs.
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "node_fixture.h"

namespace {

constexpr char kInside[] = "VERBENA_BOUNDARY_TEST";

// ASan and TSan must come first in the preload order; the boundary has to work with either.
void add_option(const char* variable, const char* option) {
  const char* before = getenv(variable);
  const std::string value = before != nullptr ? std::string(before) + ":" + option : option;
  setenv(variable, value.c_str(), 1);
}

int run_inside(char** arguments) {
  const std::string node = verbena::testing::make_node();
  setenv("VERBENA_NODE", node.c_str(), 1);
  setenv("LD_PRELOAD", VERBENA_PRELOAD, 1);
  setenv(kInside, "1", 1);
  unsetenv("SYSFS_PATH");
  unsetenv("RDMAV_DRIVERS");
  add_option("ASAN_OPTIONS", "verify_asan_link_order=0");
  pid_t child;
  int status = 1;
  if (posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments, environ) != 0 ||
      waitpid(child, &status, 0) != child)
    std::perror("cannot start myself under the preload");
  verbena::testing::remove_folder(node);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace

int main(int count, char** arguments) {
  if (getenv(kInside) == nullptr) return run_inside(arguments);
  testing::InitGoogleTest(&count, arguments);
  return RUN_ALL_TESTS();
}
