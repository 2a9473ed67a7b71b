// SPDX-License-Identifier: BSD-2-Clause
#include "command_under_test.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "common/new_folder.h"
#include "fabric/node.h"
#include "fabric/node_directory.h"
#include "fabric/node_holders.h"

namespace verbena::test {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> result;
  for (const std::string& word : words) result.push_back(const_cast<char*>(word.c_str()));
  result.push_back(nullptr);
  return result;
}

// Reads both pipes until both end; false if the deadline comes first.
bool drain(std::array<int, 2> pipes, std::array<std::string*, 2> texts, Clock::time_point deadline) {
  std::array<pollfd, 2> polled{{{pipes[0], POLLIN, 0}, {pipes[1], POLLIN, 0}}};
  int open = 2;
  while (open > 0) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    poll(polled.data(), 2, static_cast<int>(left));
    for (unsigned i = 0; i < 2; ++i) {
      if (polled[i].fd < 0 || polled[i].revents == 0) continue;
      char buffer[4096];
      const ssize_t got = read(polled[i].fd, buffer, sizeof buffer);
      if (got > 0) {
        texts[i]->append(buffer, static_cast<size_t>(got));
      } else {
        polled[i].fd = -1;
        --open;
      }
    }
  }
  return true;
}

}  // namespace

bool Outcome::exited_with(int code) const { return WIFEXITED(status) && WEXITSTATUS(status) == code; }
bool Outcome::died_of(int signal) const { return WIFSIGNALED(status) && WTERMSIG(status) == signal; }

Outcome run(const std::vector<std::string>& words, const Environment& environment) {
  std::vector<std::string> variables;
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  const std::vector<char*> arguments = pointers(words);
  const std::vector<char*> settings = pointers(variables);
  std::array<int, 2> out{};
  std::array<int, 2> err{};
  Outcome outcome;
  if (pipe(out.data()) != 0 || pipe(err.data()) != 0) {
    ADD_FAILURE() << "no pipes";
    return outcome;
  }
  outcome.pid = fork();
  if (outcome.pid == 0) {
    dup2(out[1], 1);
    dup2(err[1], 2);
    for (const int fd : {out[0], out[1], err[0], err[1]}) close(fd);
    execve(arguments[0], arguments.data(), settings.data());
    _exit(99);
  }
  close(out[1]);
  close(err[1]);
  if (!drain({out[0], err[0]}, {&outcome.out, &outcome.err}, Clock::now() + std::chrono::seconds(60))) {
    ADD_FAILURE() << words[0] << " did not end in time";
    kill(outcome.pid, SIGKILL);
  }
  waitpid(outcome.pid, &outcome.status, 0);
  close(out[0]);
  close(err[0]);
  return outcome;
}

void CommandTest::SetUp() {
  folder_ = new_folder("tool");
  ASSERT_FALSE(folder_.empty()) << std::strerror(errno);
  environment_ = {{"PATH", "/usr/local/bin:/usr/bin:/bin"}, {"TMPDIR", folder_}};
}

void CommandTest::hold(const std::string& node) {
  NodeDirectory directory;
  if (directory.open(directory_path(node).c_str()) == 0) add_holder(directory, getpid());
}

void CommandTest::TearDown() { std::filesystem::remove_all(folder_); }

Outcome CommandTest::verbena(std::vector<std::string> words) const {
  words.insert(words.begin(), VERBENA_COMMAND);
  return run(words, environment_);
}

}  // namespace verbena::test
