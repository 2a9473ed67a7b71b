// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace verbena::test {

// What `call` gives in a forked child, as its exit status (0 to 255); 128 and the signal that ended it.
inline int in_child(const std::function<int()>& call) {
  const pid_t child = fork();
  if (child == 0) _exit(call());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace verbena::test
