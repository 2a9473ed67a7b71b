// SPDX-License-Identifier: BSD-2-Clause
//
// verbena run --faults, --chaos and --link.
#include "tool/faults_file.h"

#include <infiniband/verbs.h>
#include <signal.h>

#include <fstream>
#include <string_view>

#include "command_under_test.h"
#include "engine/rules/vendor_error.h"
#include "fabric/counted.h"
#include "tool/chaos_run.h"

namespace verbena::test {
namespace {

using tool::parse_duration;
using tool::parse_link;
using tool::quoted;
using tool::read_faults;

class FaultsFile : public CommandTest {
 protected:
  std::string write(const std::string& text) const {
    const std::string file = folder_ + "/faults.toml";
    std::ofstream(file) << text;
    return file;
  }
  std::string problem_of(const std::string& text) {
    faults::Plan plan;
    std::string problem;
    EXPECT_FALSE(read_faults(write(text), &plan, &schedule_, &problem)) << text;
    return problem;
  }
  tool::Schedule schedule_;
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
                                "object = \"MR\"\n"
                                "[[fault]]\n"
                                "what = \"lose_ack\"\n"
                                "opcode = \"SEND\"\n"
                                "[[fault]]\n"
                                "what = \"shuffle\"\n"
                                "[[fault]]\n"
                                "what = \"late\"\n"
                                "cq = 1\n"
                                "time = \"10us\"\n"
                                "[[fault]]\n"
                                "what = \"lose_packet\"\n"
                                "packet = \"response\"\n"
                                "[[fault]]\n"
                                "what = \"delay_packet\"\n"
                                "time = \"10us\"\n"),
                          &plan, &schedule_, &problem))
      << problem;
  EXPECT_EQ(plan.seed, 7u);
  EXPECT_EQ(plan.link, (faults::Link{25'000'000'000, 2'000}));
  ASSERT_EQ(plan.rules.size(), 8u);
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
  EXPECT_EQ(plan.rules[3].what, faults::Fault::kLoseAck);
  EXPECT_EQ(plan.rules[4].what, faults::Fault::kShuffle);
  EXPECT_EQ(plan.rules[5].what, faults::Fault::kLate);
  EXPECT_EQ(plan.rules[6].what, faults::Fault::kLosePacket);
  EXPECT_EQ(plan.rules[6].opcode, static_cast<uint32_t>(faults::PacketKind::kResponse));
  EXPECT_EQ(plan.rules[7].opcode, faults::kAny);
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
  EXPECT_NE(
      problem_of("[[fault]]\nwhat = \"lose_packet\"\npacket = \"SEND\"\n").find(":3: packet is request"),
      std::string::npos);
  EXPECT_NE(problem_of("[[fault]\n").find(":1: "), std::string::npos);
}

TEST_F(FaultsFile, RefusesKeysThatDoNotFit) {
  const char* const kWrong[][2] = {{"rnr", "cq = 0"},           {"hold", "qp = 0"},
                                   {"refuse", "qp = 0"},        {"wake", "opcode = \"SEND\""},
                                   {"lose", "object = \"QP\""}, {"delay", "error = \"rkey_unknown\""},
                                   {"die", "time = \"1ms\""},   {"wake", "time = \"1ms\""},
                                   {"lose_packet", "qp = 0"},   {"lose", "packet = \"mad\""}};
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

TEST_F(FaultsFile, HasEventsOfDevices) {
  faults::Plan plan;
  std::string problem;
  ASSERT_TRUE(read_faults(write("[[fault]]\n"
                                "what = \"port_down\"\n"
                                "device = 1\n"
                                "port = 2\n"
                                "from = \"1s\"\n"
                                "time = \"200ms\"\n"
                                "[[fault]]\n"
                                "what = \"device_fatal\"\n"
                                "from = \"3s\"\n"),
                          &plan, &schedule_, &problem))
      << problem;
  EXPECT_TRUE(plan.rules.empty());
  ASSERT_EQ(schedule_.size(), 3u);
  EXPECT_EQ(schedule_[0].type, IBV_EVENT_PORT_ERR);
  EXPECT_EQ(schedule_[0].device, 1u);
  EXPECT_EQ(schedule_[0].port, 2u);
  EXPECT_EQ(schedule_[0].at_ns, 1'000'000'000u);
  EXPECT_EQ(schedule_[1].type, IBV_EVENT_PORT_ACTIVE);
  EXPECT_EQ(schedule_[1].at_ns, 1'200'000'000u);
  EXPECT_EQ(schedule_[2].type, IBV_EVENT_DEVICE_FATAL);
  EXPECT_EQ(schedule_[2].device, 0u);
  EXPECT_NE(problem_of("[[fault]]\nwhat = \"gid_change\"\ntime = \"1s\"\n").find(":3: time does not fit"),
            std::string::npos);
}

// The program waits for both.
TEST_F(FaultsFile, PutsAPortDownAndUpAgain) {
  const std::string file = write("[[fault]]\nwhat = \"port_down\"\nfrom = \"100ms\"\ntime = \"2s\"\n");
  EXPECT_TRUE(verbena({"run", "--faults", file, "--", "sh", "-c",
                       "until \"$0\" metrics | grep -q '^verbena_port_active{.* 0$'; do :; done; "
                       "until \"$0\" metrics | grep -q '^verbena_port_active{.* 1$'; do :; done",
                       VERBENA_COMMAND})
                  .exited_with(0));
}

// The outer program keeps the node.
TEST_F(FaultsFile, LeavesNoPortDown) {
  const std::string file = write("[[fault]]\nwhat = \"port_down\"\n");
  EXPECT_TRUE(verbena({"run", "--", "sh", "-c",
                       "\"$0\" run --faults \"$1\" -- sh -c "
                       "'until \"$0\" metrics | grep -q \"^verbena_port_active{.* 0$\"; do :; done' \"$0\"; "
                       "until \"$0\" metrics | grep -q '^verbena_port_active{.* 1$'; do :; done",
                       VERBENA_COMMAND, file})
                  .exited_with(0));
}

TEST_F(FaultsFile, NamesAPortThatTheNodeDoesNotHave) {
  const std::string file = write("[[fault]]\nwhat = \"port_down\"\nport = 2\n");
  const Outcome outcome = verbena({"run", "--faults", file, "--", "true"});
  EXPECT_TRUE(outcome.exited_with(1));
  EXPECT_NE(outcome.err.find("does not have"), std::string::npos) << outcome.err;
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

using Chaos = FaultsFile;

TEST_F(Chaos, TellsHowAFailureIsRepeated) {
  const Outcome failed = verbena({"run", "--chaos", "7", "--", "sh", "-c", "exit 3"});
  EXPECT_TRUE(failed.exited_with(3));
  EXPECT_NE(failed.err.find("the program ended with status 3 under --chaos"), std::string::npos)
      << failed.err;
  EXPECT_NE(failed.err.find(" run --chaos 7 -- sh -c 'exit 3'\n"), std::string::npos) << failed.err;
  const Outcome crashed = verbena({"run", "--chaos", "7", "--", "sh", "-c", "kill -ABRT $$"});
  EXPECT_TRUE(crashed.died_of(SIGABRT));
  EXPECT_NE(crashed.err.find("was ended by a signal"), std::string::npos) << crashed.err;
}

TEST_F(Chaos, SaysNothingOfAProgramThatSucceedsOrIsEnded) {
  EXPECT_EQ(verbena({"run", "--chaos", "7", "--", "true"}).err, "");
  const Outcome ended = verbena({"run", "--chaos", "7", "--", "sh", "-c", "kill -TERM $$"});
  EXPECT_TRUE(ended.died_of(SIGTERM));
  EXPECT_EQ(ended.err, "");
}

TEST_F(Chaos, HandsSignalsOn) {
  const Outcome outcome =
      verbena({"run", "--chaos", "7", "--", "sh", "-c",
               "trap 'exit 0' TERM; kill -TERM $PPID; for i in $(seq 1000); do sleep 0.01; done; exit 9"});
  EXPECT_TRUE(outcome.exited_with(0)) << outcome.err;
}

TEST(Words, AreQuotedForAShell) {
  EXPECT_EQ(quoted({"verbena", "run", "--link", "25Gbps,2us", "it's", "", "a b"}),
            "verbena run --link 25Gbps,2us 'it'\\''s' '' 'a b'");
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
