// SPDX-License-Identifier: BSD-2-Clause
//
// Runs a command in a chosen environment and returns its output. Every wait is bounded.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace verbena::test {

struct Outcome {
  pid_t pid = -1;
  int status = -1;  // as wait(2) gives it
  std::string out;
  std::string err;

  bool exited_with(int code) const;
  bool died_of(int signal) const;
};

using Environment = std::map<std::string, std::string>;

// Kills the command, and fails the test, when it takes longer than 60 seconds.
Outcome run(const std::vector<std::string>& words, const Environment& environment);

// A folder for nodes; PATH and TMPDIR are the whole environment.
class CommandTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  Outcome verbena(std::vector<std::string> words) const;

  // The node that a command has made stays while this process lives.
  static void hold(const std::string& node);

  std::string folder_;
  Environment environment_;
};

}  // namespace verbena::test
