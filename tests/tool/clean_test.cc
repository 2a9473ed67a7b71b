// SPDX-License-Identifier: BSD-2-Clause
//
// verbena clean and verbena status --all, from outside; and what `verbena run` leaves behind.
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "command_under_test.h"
#include "fabric/node.h"

namespace verbena::test {
namespace {

namespace fs = std::filesystem;

struct CleanCommand : CommandTest {
  std::string nodes() const { return folder_ + "/verbena-" + std::to_string(geteuid()); }
  std::string node(const std::string& name) const { return nodes() + "/" + name + "-1-eth"; }
  size_t left() const {
    const fs::directory_iterator all(nodes());
    return static_cast<size_t>(std::distance(begin(all), end(all)));
  }
};

TEST_F(CleanCommand, RemovesWhatNobodyUsesAndSaysSo) {
  verbena({"run", "--node", "mine", "--", "true"});
  const Outcome outcome = verbena({"clean", "--here"});
  EXPECT_TRUE(outcome.exited_with(0)) << outcome.err;
  EXPECT_EQ(outcome.out, node("mine") + ": removed\n1 node removed\n");
  EXPECT_EQ(left(), 0u);
}

TEST_F(CleanCommand, OnlySaysWhatItWouldRemove) {
  verbena({"run", "--node", "mine", "--", "true"});
  const Outcome outcome = verbena({"clean", "--dry-run"});
  EXPECT_TRUE(outcome.exited_with(0)) << outcome.err;
  EXPECT_NE(outcome.out.find(node("mine") + ": would be removed\n"), std::string::npos) << outcome.out;
  EXPECT_TRUE(fs::exists(node("mine")));
}

TEST_F(CleanCommand, KeepsTheNodeOfARunningProgram) {
  const Outcome shell =
      verbena({"run", "--node", "mine", "--", "sh", "-c", VERBENA_COMMAND " clean --here; true"});
  EXPECT_EQ(shell.out, node("mine") + ": kept: a process uses it\n0 nodes removed\n");
}

TEST_F(CleanCommand, TakesNoProgram) { EXPECT_TRUE(verbena({"clean", "--", "true"}).exited_with(2)); }

TEST_F(CleanCommand, HasNothingToDoWithoutNodes) {
  const Outcome outcome = verbena({"clean", "--here"});
  EXPECT_TRUE(outcome.exited_with(0)) << outcome.err;
  EXPECT_EQ(outcome.out, "0 nodes removed\n");
}

TEST_F(CleanCommand, HasLittleToDoAfterAHundredNodes) {
  for (int i = 0; i < 100; ++i) verbena({"run", "--node", "n" + std::to_string(i), "--", "true"});
  EXPECT_EQ(left(), 1u);
}

TEST_F(CleanCommand, RemovesANodeThatRemembersAPort) {
  verbena({"run", "--node", "mine", "--", "sh", "-c", VERBENA_COMMAND " event verbena0 port-down"});
  verbena({"run", "--node", "yours", "--", "true"});
  EXPECT_TRUE(fs::exists(node("mine")));
  verbena({"clean", "--here"});
  EXPECT_FALSE(fs::exists(node("mine")));
}

// Two shells with different TMPDIR.
TEST_F(CleanCommand, StatusShowsNodesOfEachFolder) {
  const std::string runtime = folder_ + "/run";
  ASSERT_EQ(mkdir(runtime.c_str(), 0700), 0);
  verbena({"run", "--node", "mine", "--", "true"});
  environment_["XDG_RUNTIME_DIR"] = runtime;
  const Outcome outcome =
      verbena({"run", "--node", "yours", "--", "sh", "-c", VERBENA_COMMAND " status --all; true"});
  EXPECT_NE(outcome.out.find("node " + node("mine") + ":"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("node " + runtime + "/verbena/yours-1-eth:"), std::string::npos) << outcome.out;
}

TEST_F(CleanCommand, StatusOfAllNamesNoNode) {
  EXPECT_TRUE(verbena({"status", "--all", "--node", "mine"}).exited_with(2));
}

}  // namespace
}  // namespace verbena::test
