// SPDX-License-Identifier: BSD-2-Clause
//
// A forked process for a test. It never outlives the test: its waits end with the parent's pipe, and the
// destructor kills it.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

namespace verbena {

class Child {
 public:
  // Runs body(*this) in the child; what it returns is the exit status.
  template <typename Body>
  explicit Child(Body&& body) {
    if (pipe(to_parent_) != 0 || pipe(to_child_) != 0) return;
    pid_ = fork();
    if (pid_ != 0) {
      close_end(to_parent_[1]);
      close_end(to_child_[0]);
      return;
    }
    close_end(to_parent_[0]);
    close_end(to_child_[1]);
    alarm(50);
    _exit(std::forward<Body>(body)(*this));
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    kill_now();
    for (int* end : {&to_parent_[0], &to_parent_[1], &to_child_[0], &to_child_[1]}) close_end(*end);
  }

  pid_t pid() const { return pid_; }

  // ---- in the child ----
  void tell(char word) const { [[maybe_unused]] const ssize_t sent = write(to_parent_[1], &word, 1); }
  // Waits for a command of the parent; 0: the parent is gone.
  char hear() const {
    char word = 0;
    return read(to_child_[0], &word, 1) == 1 ? word : 0;
  }

  // ---- in the parent ----
  void command(char word) const { [[maybe_unused]] const ssize_t sent = write(to_child_[1], &word, 1); }
  // The child's next answer; 0: it is gone, or sent nothing for 20 seconds.
  char answer() const {
    pollfd readable{to_parent_[0], POLLIN, 0};
    char word = 0;
    return poll(&readable, 1, 20000) == 1 && read(to_parent_[0], &word, 1) == 1 ? word : 0;
  }
  void stop() const {
    kill(pid_, SIGSTOP);
    siginfo_t info;
    waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WNOWAIT);
  }
  void go_on() const { kill(pid_, SIGCONT); }
  void kill_now() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  // Waits for its end; its exit status, or -1.
  int finish() {
    int status = -1;
    if (pid_ <= 0 || waitpid(pid_, &status, 0) != pid_) return -1;
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  static void close_end(int& fd) {
    if (fd >= 0) close(fd);
    fd = -1;
  }

  int to_parent_[2] = {-1, -1};
  int to_child_[2] = {-1, -1};
  pid_t pid_ = -1;
};

}  // namespace verbena
