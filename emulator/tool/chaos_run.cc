// SPDX-License-Identifier: BSD-2-Clause
#include "tool/chaos_run.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>

#include "tool/command.h"
#include "tool/program.h"

namespace verbena::tool {
namespace {

// The words of this process's command line: proc(5).
std::vector<std::string> own_words() {
  std::vector<std::string> words;
  std::ifstream file("/proc/self/cmdline");
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

// Those that the program raises by its mistakes. Others come from outside.
bool is_crash(int number) {
  for (const int each : {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP})
    if (number == each) return true;
  return false;
}

// "": it has not failed. 126 and 127: it has not run (become()).
std::string failure_of(int status) {
  if (WIFSIGNALED(status))
    return is_crash(WTERMSIG(status))
               ? std::string("was ended by a signal (") + strsignal(WTERMSIG(status)) + ")"
               : "";
  const int code = WEXITSTATUS(status);
  return code == 0 || code == 126 || code == 127 ? "" : "ended with status " + std::to_string(code);
}

// As the program: a shell is to see the same.
void die_of(int number) {
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);  // the program has left its own
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, number);
  signal(number, SIG_DFL);
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
  raise(number);
}

// Until the program ends.
int wait_for(pid_t child, const sigset_t& signals) {
  for (;;) {
    int status = 0;
    if (const pid_t ended = waitpid(child, &status, WNOHANG); ended != 0) return ended == child ? status : 0;
    siginfo_t info;
    const int number = sigwaitinfo(&signals, &info);
    if (number > 0 && is_for_program(info)) kill(child, number);
  }
}

}  // namespace

std::string quoted(const std::vector<std::string>& words) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char each : word) line += each == '\'' ? std::string("'\\''") : std::string(1, each);
    line += '\'';
  }
  return line;
}

int run_under_chaos(const std::vector<std::string>& program) {
  const sigset_t signals = signals_beside_program();
  sigset_t before;
  sigprocmask(SIG_BLOCK, &signals, &before);
  const sighandler_t of_children = signal(SIGCHLD, SIG_DFL);  // where it is ignored there is no status
  const pid_t self = getpid();
  const pid_t child = fork();
  if (child < 0) return failed(std::strerror(errno));
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != self) _exit(kFailed);
    signal(SIGCHLD, of_children);
    sigprocmask(SIG_SETMASK, &before, nullptr);
    _exit(become(program));
  }
  const int status = wait_for(child, signals);
  if (const std::string failure = failure_of(status); !failure.empty())
    std::fprintf(stderr, "verbena: the program %s under --chaos. The same faults again:\n  %s\n",
                 failure.c_str(), quoted(own_words()).c_str());
  if (WIFSIGNALED(status)) die_of(WTERMSIG(status));
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace verbena::tool
