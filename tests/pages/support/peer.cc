// SPDX-License-Identifier: BSD-2-Clause
#include "peer.h"

#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

namespace verbena::pages {

Peer::Peer(const std::string& role, const std::string& host, uint16_t port) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  std::string text[] = {"pages_test", kRoleOption, role, host, std::to_string(port)};
  char* arguments[] = {text[0].data(), text[1].data(), text[2].data(),
                       text[3].data(), text[4].data(), nullptr};
  EXPECT_EQ(posix_spawn(&child_, "/proc/self/exe", &actions, nullptr, arguments, environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  FILE* said = fdopen(ends[0], "r");
  unsigned listening = 0;
  if (said == nullptr || fscanf(said, "%u", &listening) != 1) ADD_FAILURE() << role << " says no port";
  port_ = static_cast<uint16_t>(listening);
  if (said != nullptr) fclose(said);
}

Peer::~Peer() {
  if (child_ < 0) return;
  kill();
  wait();
}

void Peer::kill() { ::kill(child_, SIGKILL); }

int Peer::wait() {
  int status = 0;
  if (child_ < 0 || waitpid(child_, &status, 0) != child_) return -1;
  child_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace verbena::pages
