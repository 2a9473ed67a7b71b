// SPDX-License-Identifier: BSD-2-Clause
//
// What every test is made of: the base class, the ways to end without a verdict of CONFORMS or DEVIATES, and
// the options of the run.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <initializer_list>
#include <source_location>
#include <string>

#include "suite/clause_ids.h"
#include "suite/names.h"
#include "suite/options.h"
#include "suite/registry.h"
#include "suite/trace.h"

namespace conformance {

using Where = std::source_location;

// Thrown within a test; the base class turns them into findings. None crosses a C function.
struct Deviation {  // something the test needs, and the device claims, did not work
  std::string text;
  Where where;
};
struct NotClaimed {  // the device says that it does not have this, and refused properly
  std::string reason;
};
struct FarNotClaimed : NotClaimed {  // the device of the far end says so; the one under test may have it
};
struct NotTested {  // the machine or the topology lacks what the test needs
  std::string reason;
};

class Test : public testing::Test {
 public:
  void TestBody() final;

 protected:
  virtual void run() = 0;
};

// As long as it exists, findings concern one clause of the test, not all of them. If one of them ends the
// test, the clauses that nothing was found of are NOT TESTED.
class About {
 public:
  explicit About(ClauseId clause);
  About(const About&) = delete;
  About& operator=(const About&) = delete;
  ~About();
};

// ABOUT("clause") before a statement: its findings concern that clause. A loop of one round, since an `else`
// within the statement would belong to an `if`.
#define ABOUT(clause) CONFORMANCE_ABOUT(clause, __LINE__)
#define CONFORMANCE_ABOUT(clause, line) CONFORMANCE_ABOUT_AT(clause, line)
#define CONFORMANCE_ABOUT_AT(clause, line) \
  for (::conformance::OneRound about_##line(clause); about_##line.goes_on(); about_##line.end())
class OneRound {
 public:
  explicit OneRound(ClauseId clause) : about_(clause) {}
  bool goes_on() const { return !has_ended_; }
  void end() { has_ended_ = true; }

 private:
  About about_;
  bool has_ended_ = false;
};

// For a clause of level "choice": what this device does.
void observe(ClauseId clause, const std::string& what);

// The clause of the innermost About does not apply to this device; the test goes on.
void not_claimed(const std::string& reason);
// What the clause of the innermost About promises cannot be tried on this device; the test goes on.
void not_tested(const std::string& reason);

const Options& options();
void use_options(const Options& options);                          // of this process; they must outlive it
std::chrono::milliseconds scaled(std::chrono::milliseconds time);  // times --time-scale
// Pause between two checks of a condition. Not sched_yield(2): Linux 6.18, with a scheduling group for each
// session, has been seen to leave both processors for two seconds to a program one thread of which yields
// while another wakes every 200 us, with others ready to run.
void give_way();

// "Returns the value of errno on failure": some positive errno value, or one of those named.
testing::AssertionResult refused(int result, std::initializer_list<int> allowed = {});
// "Returns NULL on failure": no errno is promised, and none may be set. Else one of those named. To be called
// while errno is still that of the call.
testing::AssertionResult refused(const void* result, std::initializer_list<int> allowed = {});
// "Returns NULL on failure and sets errno."
testing::AssertionResult refused_with_errno(const void* result);
testing::AssertionResult succeeded(int result);

}  // namespace conformance

#define EXPECT_REFUSED(...) EXPECT_TRUE(::conformance::refused(CALL(__VA_ARGS__)))
#define EXPECT_REFUSED_WITH(errors, ...) \
  EXPECT_TRUE(::conformance::refused(CALL(__VA_ARGS__), CONFORMANCE_LIST errors))
#define ASSERT_SUCCEEDS(...) ASSERT_TRUE(::conformance::succeeded(CALL(__VA_ARGS__)))
#define EXPECT_SUCCEEDS(...) EXPECT_TRUE(::conformance::succeeded(CALL(__VA_ARGS__)))
#define CONFORMANCE_LIST(...) \
  { __VA_ARGS__ }
