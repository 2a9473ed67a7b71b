// SPDX-License-Identifier: BSD-2-Clause
//
// verbena run --faults, --chaos and --link.
#include "tool/faults_file.h"

#include <infiniband/verbs.h>

#include <fstream>
#include <string_view>

#include "command_under_test.h"
#include "engine/rules/vendor_error.h"
#include "fabric/counted.h"

namespace verbena::test {
namespace {

using tool::parse_duration;
using tool::parse_link;
using tool::read_faults;

class FaultsFile : public CommandTest {
 protected:
  std::string write(const std::string& text) const {
    const std::string file = folder_ + "/faults.toml";
    std::ofstream(file) << text;
    return file;
  }
  std::string problem_of(const std::string& text) const {
    faults::Plan plan;
    std::string problem;
    EXPECT_FALSE(read_faults(write(text), &plan, &problem)) << text;
    return problem;
  }
};

TEST_F(FaultsFile, IsAPlan) {
  faults::Plan plan;
  std::string problem;
  ASSERT_TRUE(read_faults(write("seed = 7\n"
                                "link = \"25Gbps,2us\"\n"
                                "[[fault]]\n"
                                "what = \"fail\"\n"
                                "qp = 3\n"
                                "opcode = \"RDMA_WRITE\"\n"
                                "nth = 100\n"
                                "error = \"rkey_out_of_range\"\n"
                                "[[fault]]\n"
                                "what = \"delay\"\n"
                                "probability = 0.5\n"
                                "time = [\"10us\", \"1ms\"]\n"
                                "from = \"10ms\"\n"
                                "until = \"1.5s\"\n"
                                "[[fault]]\n"
                                "what = \"refuse\"\n"
                                "object = \"MR\"\n"),
                          &plan, &problem))
      << problem;
  EXPECT_EQ(plan.seed, 7u);
  EXPECT_EQ(plan.link, (faults::Link{25'000'000'000, 2'000}));
  ASSERT_EQ(plan.rules.size(), 3u);
  EXPECT_EQ(plan.rules[0].object, 3u);
  EXPECT_EQ(plan.rules[0].opcode, static_cast<uint32_t>(IBV_WR_RDMA_WRITE));
  EXPECT_EQ(plan.rules[0].nth, 100u);
  EXPECT_EQ(plan.rules[0].vendor_err, static_cast<uint32_t>(VendorError::rkey_out_of_range));
  EXPECT_EQ(plan.rules[1].probability, 0.5);
  EXPECT_EQ(plan.rules[1].least_ns, 10'000u);
  EXPECT_EQ(plan.rules[1].most_ns, 1'000'000u);
  EXPECT_EQ(plan.rules[1].from_ns, 10'000'000u);
  EXPECT_EQ(plan.rules[1].until_ns, 1'500'000'000u);
  EXPECT_EQ(plan.rules[2].object, static_cast<uint32_t>(Counted::kMrs));
}

TEST_F(FaultsFile, NamesTheLineOfAMistake) {
  EXPECT_NE(
      problem_of("[[fault]]\nwhat = \"lose\"\nopcode = \"BEAUTY\"\n").find(":3: there is no opcode BEAUTY"),
      std::string::npos);
  EXPECT_NE(problem_of("seed = -1\n").find(":1: seed is a whole number"), std::string::npos);
  EXPECT_NE(problem_of("beauty = 1\n").find(":1: there are seed, link and [[fault]]"), std::string::npos);
  EXPECT_NE(problem_of("[[fault]]\nwhat = \"fail\"\n").find("fail needs an error"), std::string::npos);
  EXPECT_NE(problem_of("[[fault]]\nwhat = \"delay\"\n").find("delay needs a time"), std::string::npos);
  EXPECT_NE(problem_of("[[fault]]\nnth = 1\n").find("what is lose"), std::string::npos);
  EXPECT_NE(problem_of("[[fault]]\nwhat = \"lose\"\ncq = 1\n").find(":3: cq does not fit to lose"),
            std::string::npos);
  EXPECT_NE(problem_of("[[fault]]\nwhat = \"lose\"\nprobability = 2\n").find(":3: probability is 0 to 1"),
            std::string::npos);
  EXPECT_NE(problem_of("[[fault]\n").find(":1: "), std::string::npos);
}

TEST_F(FaultsFile, RefusesKeysThatDoNotFit) {
  const char* const kWrong[][2] = {{"rnr", "cq = 0"},           {"hold", "qp = 0"},
                                   {"refuse", "qp = 0"},        {"wake", "opcode = \"SEND\""},
                                   {"lose", "object = \"QP\""}, {"delay", "error = \"rkey_unknown\""},
                                   {"die", "time = \"1ms\""},   {"wake", "time = \"1ms\""}};
  for (const auto& [what, entry] : kWrong) {
    const std::string key(entry, std::string_view(entry).find(' '));
    EXPECT_NE(problem_of("[[fault]]\nwhat = \"" + std::string(what) + "\"\n" + entry + "\n")
                  .find(":3: " + key + " does not fit to " + what),
              std::string::npos)
        << what << ' ' << entry;
  }
  EXPECT_NE(problem_of("[[fault]]\nwhat = \"lose\"\nbeauty = 1\n").find(":3: a fault has no beauty"),
            std::string::npos);
}

TEST_F(FaultsFile, ThatIsMissingIsAUsageError) {
  const Outcome outcome = verbena({"run", "--faults", folder_ + "/none", "--", "true"});
  EXPECT_TRUE(outcome.exited_with(2));
  EXPECT_NE(outcome.err.find("cannot be read"), std::string::npos) << outcome.err;
}

TEST_F(FaultsFile, AndChaosExcludeEachOther) {
  EXPECT_TRUE(verbena({"run", "--faults", write(""), "--chaos", "1", "--", "true"}).exited_with(2));
}

TEST_F(FaultsFile, IsInTheEnvironmentOfTheProgram) {
  const Outcome outcome =
      verbena({"run", "--chaos", "5", "--link", "2us", "--", "sh", "-c", "echo \"$VERBENA_FAULTS\""});
  faults::Plan plan;
  ASSERT_TRUE(outcome.exited_with(0)) << outcome.err;
  ASSERT_TRUE(faults::parse_plan(outcome.out.substr(0, outcome.out.find('\n')), &plan)) << outcome.out;
  EXPECT_EQ(plan.seed, 5u);
  EXPECT_EQ(plan.link.latency_ns, 2'000u);
  EXPECT_EQ(verbena({"run", "--", "sh", "-c", "echo \"$VERBENA_FAULTS\""}).out, "\n");
}

TEST(Durations, HaveUnits) {
  uint64_t time = 0;
  EXPECT_TRUE(parse_duration("1.5ms", &time));
  EXPECT_EQ(time, 1'500'000u);
  for (const char* text : {"", "5", "us", "-1us", "5 us", "5m", "1e300s"})
    EXPECT_FALSE(parse_duration(text, &time)) << text;
}

TEST(Links, AreARateALatencyOrBoth) {
  faults::Link link;
  EXPECT_TRUE(parse_link("100Mbps", &link));
  EXPECT_EQ(link, (faults::Link{100'000'000, 0}));
  link = {};
  EXPECT_TRUE(parse_link("3us", &link));
  EXPECT_EQ(link, (faults::Link{0, 3'000}));
  for (const char* text : {"", "25", "25Gbps,", "2us,25Gbps", "0Gbps"})
    EXPECT_FALSE(parse_link(text, &link)) << text;
}

}  // namespace
}  // namespace verbena::test
