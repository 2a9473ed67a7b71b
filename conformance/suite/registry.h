// SPDX-License-Identifier: BSD-2-Clause
//
// The tests that exist. A test names its chapter and its clauses where it is written. A test without a
// clause, or with one that does not exist, does not compile; a clause without a test fails the build
// (audit.h).
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "suite/clause.h"

namespace conformance {

// How a test wants to be run.
struct Traits {
  bool is_slow = false;        // not part of --quick
  bool is_alone = false;       // takes so much of the device that nothing may run beside it
  bool is_disruptive = false;  // other users of the adapter may notice: only with --allow-disruptive
  int limit_seconds = 10;      // multiplied by --time-scale

  constexpr Traits slow() const {
    return with([](Traits& t) { t.is_slow = true; });
  }
  constexpr Traits alone() const {
    return with([](Traits& t) { t.is_alone = true; });
  }
  constexpr Traits disruptive() const {
    return with([](Traits& t) { t.is_disruptive = t.is_alone = true; });
  }
  constexpr Traits limit(int seconds) const {
    return with([=](Traits& t) { t.limit_seconds = seconds; });
  }

 private:
  template <typename Change>
  constexpr Traits with(Change change) const {
    Traits copy = *this;
    change(copy);
    return copy;
  }
};

struct TestInfo {
  std::string chapter;  // key of a chapter
  std::string name;     // CamelCase, what it proves
  std::vector<ClauseId> clauses;
  std::vector<std::string>
      unknown_clauses;  // ids of a generated test that no clauses file has: the audit refuses
  Traits traits;
  const char* file;
  int line;
  std::function<testing::Test*()> make;

  std::string full_name() const { return chapter + "." + name; }
};

const std::vector<TestInfo>& tests();  // sorted by chapter and file, then in the order they were registered

struct Registration {
  Registration(const char* chapter, const char* name, std::initializer_list<ClauseId> clauses, Traits traits,
               const char* file, int line, std::function<testing::Test*()> make);
};

// "rc.write-imm" as the CamelCase of a test's name, RcWriteImm: for tests that are rows of a table.
std::string test_name(const std::string& row);

// For tests that are rows of a table.
void register_generated(const char* chapter, const std::string& name,
                        const std::vector<std::string>& clause_ids, Traits traits, const char* file, int line,
                        std::function<testing::Test*()> make);

}  // namespace conformance

// CONFORMANCE_TEST(pd, DeallocWithAnMrIsRefused, "ibv_dealloc_pd.busy") { ... }
// The class named Fixture where the test stands is its base: a chapter's file says `using Fixture = ...`
// once.
#define CONFORMANCE_TEST(chapter, name, ...) \
  CONFORMANCE_TEST_AS(::conformance::Traits(), chapter, name, __VA_ARGS__)

// With traits: CONFORMANCE_TEST_AS(Traits().slow().limit(30), cq, ...)
#define CONFORMANCE_TEST_AS(traits, chapter, name, ...)                                                      \
  class chapter##_##name##_Test final : public Fixture {                                                     \
    void run() override;                                                                                     \
  };                                                                                                         \
  static const ::conformance::Registration chapter##_##name##_registration(                                  \
      #chapter, #name, {__VA_ARGS__}, traits, __FILE__, __LINE__,                                            \
      []() -> ::testing::Test* { return new chapter##_##name##_Test; });                                     \
  static_assert(std::initializer_list<::conformance::ClauseId>{__VA_ARGS__}.size() > 0, "name the clauses"); \
  void chapter##_##name##_Test::run()
