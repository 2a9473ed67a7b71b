// SPDX-License-Identifier: BSD-2-Clause
//
// Device profiles: the built-in ones, and the messages for those that cannot be used.
#include "tool/profile.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "command_under_test.h"

namespace verbena::test {
namespace {

namespace fs = std::filesystem;
using tool::parse_profile;

std::string shipped(const std::string& name) {
  std::ifstream file(fs::path(VERBENA_COMMAND).parent_path().parent_path() / "share/verbena/profiles" / name);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string problem_of(const std::string& text) {
  DeviceLimits limits;
  std::string problem;
  EXPECT_FALSE(parse_profile(text, "p.toml", &limits, &problem));
  return problem;
}

TEST(Profile, DefaultSaysWhatTheDeviceIsWithoutAny) {
  DeviceLimits limits;
  std::string problem;
  ASSERT_TRUE(parse_profile(shipped("default.toml"), "default.toml", &limits, &problem)) << problem;
  for (const Limit& limit : all_limits())
    EXPECT_EQ(limits.*limit.value, DeviceLimits{}.*limit.value) << limit.name;
  EXPECT_EQ(limits, DeviceLimits{});
}

TEST(Profile, DefaultNamesEveryLimit) {
  const std::string text = shipped("default.toml");
  for (const Limit& limit : all_limits())
    EXPECT_NE(text.find("\n" + std::string(limit.name) + " ="), std::string::npos) << limit.name;
}

TEST(Profile, MinimalCanBeUsed) {
  DeviceLimits limits;
  std::string problem;
  EXPECT_TRUE(parse_profile(shipped("minimal.toml"), "minimal.toml", &limits, &problem)) << problem;
  EXPECT_STREQ(limits.profile.data(), "minimal");
}

TEST(Profile, RxeSaysWhatTheKernelsHeaderSays) {
  DeviceLimits limits;
  std::string problem;
  ASSERT_TRUE(parse_profile(shipped("rxe.toml"), "rxe.toml", &limits, &problem)) << problem;
  EXPECT_EQ(limits.max_qp, 0x10000u);
  EXPECT_EQ(limits.max_ah, 100u);
  EXPECT_EQ(limits.max_cqe, (1u << 15) - 1);
}

TEST(Profile, WhatItDoesNotNameIsAsInDefault) {
  DeviceLimits limits;
  std::string problem;
  ASSERT_TRUE(parse_profile("max_qp = 7\n", "mine.toml", &limits, &problem)) << problem;
  EXPECT_EQ(limits.max_qp, 7u);
  EXPECT_EQ(limits.max_cq, DeviceLimits{}.max_cq);
}

TEST(Profile, IsNamedAfterItsFile) {
  DeviceLimits limits;
  std::string problem;
  ASSERT_TRUE(parse_profile("", "/some/where/mine.toml", &limits, &problem)) << problem;
  EXPECT_STREQ(limits.profile.data(), "mine");
}

TEST(ProfileProblem, NotToml) { EXPECT_EQ(problem_of("\nmax_qp = = 3\n").rfind("p.toml:2: ", 0), 0u); }
TEST(ProfileProblem, AnUnknownName) {
  EXPECT_EQ(problem_of("\n\nmax_qps = 3\n"), "p.toml:3: no such limit: max_qps");
}
TEST(ProfileProblem, ATable) { EXPECT_EQ(problem_of("[max_qp]\n"), "p.toml:1: max_qp is an integer"); }
TEST(ProfileProblem, NoInteger) { EXPECT_EQ(problem_of("max_qp = 1.5"), "p.toml:1: max_qp is an integer"); }
TEST(ProfileProblem, TooSmall) {
  EXPECT_EQ(problem_of("max_qp = 0"), "p.toml:1: max_qp = 0: must be 1 to 65536");
}
TEST(ProfileProblem, TooBig) {
  EXPECT_EQ(problem_of("max_cqe = 4194305"), "p.toml:1: max_cqe = 4194305: must be 1 to 4194304");
}
TEST(ProfileProblem, Negative) {
  EXPECT_EQ(problem_of("max_sge = -1"), "p.toml:1: max_sge = -1: must be 1 to 60");
}
TEST(ProfileProblem, ARuleBetweenTwo) {
  EXPECT_EQ(problem_of("max_sge = 3\nmax_sge_rd = 4"),
            "p.toml:2: max_sge_rd is at most max_sge (max_sge_rd is 4)");
}
TEST(ProfileProblem, AnMtuThatIsNone) {
  EXPECT_EQ(problem_of("active_mtu = 1500"),
            "p.toml:1: active_mtu is 256, 512, 1024, 2048 or 4096 (active_mtu is 1500)");
}
TEST(ProfileProblem, AnEntryTwice) {
  EXPECT_EQ(problem_of("max_qp = 3\nmax_qp = 4").rfind("p.toml:2: ", 0), 0u);
}
TEST(ProfileProblem, ANameThatIsNoFileName) {
  EXPECT_EQ(problem_of("name = \"a/b\"").rfind("p.toml:1: the profile's name 'a/b' is not ", 0), 0u);
}

struct ProfileOption : CommandTest {
  std::string file(const std::string& text) const {
    const std::string path = folder_ + "/mine.toml";
    std::ofstream(path) << text;
    return path;
  }
  std::string node(const std::string& profile) const {
    return verbena({"run", "--profile", profile, "--", "sh", "-c", "printf %s \"$VERBENA_NODE\""}).out;
  }
};

TEST_F(ProfileOption, ThatIsMalformedEndsInStatusTwoAndOneLine) {
  const std::string path = file("max_qp = 3\nmax_cq = 0\n");
  const Outcome outcome = verbena({"run", "--profile", path, "--", "true"});
  EXPECT_TRUE(outcome.exited_with(2));
  EXPECT_EQ(outcome.err,
            "verbena: " + path + ":2: max_cq = 0: must be 1 to 32768 (see verbena run --help)\n");
}

TEST_F(ProfileOption, ThatIsNowhereEndsInStatusTwo) {
  EXPECT_TRUE(verbena({"run", "--profile", folder_ + "/none.toml", "--", "true"}).exited_with(2));
}

TEST_F(ProfileOption, UnknownByNameSaysWhichThereAre) {
  const Outcome outcome = verbena({"run", "--profile", "nonesuch", "--", "true"});
  EXPECT_TRUE(outcome.exited_with(2));
  EXPECT_NE(outcome.err.find("default, minimal, rxe"), std::string::npos) << outcome.err;
}

TEST_F(ProfileOption, DefaultIsTheNodeWithoutIt) {
  EXPECT_EQ(node("default"), verbena({"run", "--", "sh", "-c", "printf %s \"$VERBENA_NODE\""}).out);
}

TEST_F(ProfileOption, ProgramsWithEqualProfilesMeet) { EXPECT_EQ(node("minimal"), node("minimal")); }

TEST_F(ProfileOption, AnotherProfileIsAnotherNode) { EXPECT_NE(node("minimal"), node("rxe")); }

TEST_F(ProfileOption, AChangedFileIsAnotherNode) {
  const std::string before = node(file("max_qp = 3\n"));
  EXPECT_NE(node(file("max_qp = 4\n")), before);
}

}  // namespace
}  // namespace verbena::test
