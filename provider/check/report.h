// SPDX-License-Identifier: BSD-2-Clause
//
// Findings on their way out. One is reported with the model's lock held, and written when the lock is
// released.
#pragma once

#include <initializer_list>
#include <string>

#include "check/stack.h"
#include "findings/rules.h"

namespace verbena::check {

using findings::rule;

struct Call {
  std::string what;  // "posted here"
  StackId stack;
};

// Says that the program has broken `rule`: `what` names objects and values in one or two sentences. A rule is
// reported once for each stack of the first of `calls`.
void report(const findings::Rule& rule, const std::string& what, std::initializer_list<Call> calls);

// An object that exists at exit: findings/variables.h, "leak". retract_leak(): it was destroyed after all.
void report_leak(const findings::Rule& rule, const std::string& what, StackId created, uint64_t number);
void retract_leak(uint64_t number);

// The process has opened the device `name`. With the model's lock held.
void report_device(const char* name);

// Is the rule reported? An id of VERBENA_CHECK_DISABLE is not, one of VERBENA_CHECK_ENABLE is.
bool is_enabled(const findings::Rule& rule);

// The model's lock. What is reported while it is held is written after its release. Not recursive. No other
// lock is taken while it is held, except the allocator's: free(3) and munmap(2) take it, and they are called
// under locks of the program, of its libraries and of the adapter.
class Locked {
 public:
  Locked();
  // Waits for at most a tenth of a second: for those whose caller may hold a lock that the holder waits for,
  // as an allocator that unmaps memory. Then *got is false, and the model must be left alone.
  explicit Locked(bool* got);
  ~Locked();
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  bool got_ = true;
};

// Is this thread in the checker, so that free(3) and its like are the checker's own?
bool is_inside();

// While one lives, this thread is.
class Inside {
 public:
  Inside();
  ~Inside();
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

// Called around fork(2), so that the child does not inherit a held lock. In between this thread is in the
// checker: handlers of other libraries run (pthread_atfork(3)), and may free memory.
void lock_for_fork();
void unlock_after_fork();

std::string text(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace verbena::check
