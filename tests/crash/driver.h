// SPDX-License-Identifier: BSD-2-Clause
//
// A role program under the driver's control. Every wait is bounded: when one expires, the state of all roles
// is printed and a Failure is thrown, which ends all roles.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

#include "control_block.h"

namespace verbena::crash {

inline constexpr std::chrono::seconds kPatience{20};

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// From CRASH_SEED, else from the clock; printed once. A run can be repeated with it, as far as timing allows.
uint64_t random_number();
// CRASH_ROUNDS, else `usual`.
int rounds(int usual);

// Spins for `nanoseconds`: the end of a sleep depends on the scheduler.
void busy_wait(int64_t nanoseconds);

// Waits for `condition`; when it does not come true, the message says `what`.
void await(const std::function<bool()>& condition, const std::string& what);
void require(bool condition, const std::string& what);

// States, system calls and counters of all roles.
std::string whereabouts();

class RoleProcess {
 public:
  // Starts the program and opens the device with a CQ of `cqe` entries.
  RoleProcess(std::string name, int cqe, bool with_channel);
  ~RoleProcess();
  RoleProcess(const RoleProcess&) = delete;
  RoleProcess& operator=(const RoleProcess&) = delete;

  const std::string& name() const { return name_; }
  pid_t pid() const { return pid_; }
  ControlBlock& block() const { return *block_; }
  FlowReport& flow(int index) const { return block_->flows[index]; }

  // Sends a command. Returns the answer without the "ok "; Failure when it is another one.
  std::string call(const std::string& command);
  uint64_t call_for_number(const std::string& command) { return std::stoull(call(command)); }
  void send_line(const std::string& command);
  std::string read_answer(const std::string& to);

  // Failure when the role has found an error.
  void check();

  void signal(int number);
  void stop();   // SIGSTOP; returns when the process has stopped
  void go_on();  // SIGCONT
  void kill_and_reap();
  void become_canary();  // after "await-exec"; returns when the new program runs where the role's memory was
  void quit();

  // ---- ptrace(2); the caller's thread is the tracer ----
  void seize();
  void await_mark();   // runs until the role meets a trace mark
  bool single_step();  // false: the second mark is reached
  void release();      // lets it run on, still seized

 private:
  std::string name_;
  pid_t pid_ = -1;
  int socket_ = -1;
  int exec_pipe_ = -1;
  ControlBlock* block_ = nullptr;
};

}  // namespace verbena::crash
