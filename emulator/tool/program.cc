// SPDX-License-Identifier: BSD-2-Clause
#include "tool/program.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tool/interpreter.h"

namespace verbena::tool {
namespace {

// Why execve(2) has not run the program, in words, and what to do.
std::string reason_of(const std::string& name, int error) {
  const bool searched = name.find('/') == std::string::npos;
  if (searched && error == ENOENT) return "PATH has no such program";
  struct stat status;
  if (searched || stat(name.c_str(), &status) != 0) return std::strerror(error);
  if (S_ISDIR(status.st_mode)) return "it is a folder";
  if (error == EACCES && access(name.c_str(), X_OK) != 0)
    return "it is not executable (chmod +x, or name the program that runs it)";
  // The file is there: what is missing is what it is run by.
  if (error == ENOENT)
    if (const std::string interpreter = interpreter_of(name); !interpreter.empty())
      return "it is run by " + interpreter + ", which is not there";
  return std::strerror(error);
}

}  // namespace

int become(const std::vector<std::string>& program) {
  std::vector<char*> arguments;
  for (const std::string& word : program) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  const int error = errno;
  std::fprintf(stderr, "verbena: cannot run '%s': %s\n", arguments[0], reason_of(program[0], error).c_str());
  return error == ENOENT || error == ENOTDIR ? kNotFound : kCannotRun;
}

pid_t start(const std::vector<std::string>& program, const std::vector<Variable>& environment, bool to_stderr,
            const sigset_t& mask) {
  const pid_t child = fork();
  if (child != 0) return child;
  for (const Variable& variable : environment) setenv(variable.name.c_str(), variable.value.c_str(), 1);
  if (to_stderr) dup2(STDERR_FILENO, STDOUT_FILENO);
  signal(SIGPIPE, SIG_DFL);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  _exit(become(program));
}

sigset_t signals_beside_program() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGCHLD, SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2})
    sigaddset(&set, number);
  return set;
}

bool is_for_program(const siginfo_t& info) { return info.si_signo != SIGCHLD && info.si_code != SI_KERNEL; }

}  // namespace verbena::tool
