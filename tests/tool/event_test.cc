// SPDX-License-Identifier: BSD-2-Clause
//
// verbena event, from outside. Its effects on the node's programs are in unit/engine/device/events_test.cc.
#include <fstream>

#include "command_under_test.h"

namespace verbena::test {
namespace {

struct EventCommand : CommandTest {
  void SetUp() override {
    CommandTest::SetUp();
    node_ = verbena({"run", "--", "sh", "-c", "printf %s \"$VERBENA_NODE\""}).out;  // makes it
    hold(node_);
  }
  Outcome event(const std::string& what, const std::string& device = "verbena0") const {
    return verbena({"event", device, what});
  }
  std::string port(const std::string& name) const {
    std::string line;
    std::getline(std::ifstream(node_ + "/sys/class/infiniband/verbena0/ports/1/" + name), line);
    return line;
  }
  std::string node_;
};

TEST_F(EventCommand, SaysWhatItDid) {
  const Outcome outcome = event("gid-change");
  EXPECT_TRUE(outcome.exited_with(0));
  EXPECT_EQ(outcome.out, "verbena0: gid-change, 0 processes on the node\n");
}

TEST_F(EventCommand, KnowsEveryEvent) {
  for (const char* what : {"address-change", "device-fatal", "gid-change", "port-down", "port-up"})
    EXPECT_TRUE(event(what).exited_with(0)) << what;
}

TEST_F(EventCommand, PortDownShowsInSysfs) {
  event("port-down");
  EXPECT_EQ(port("state"), "1: DOWN");
  EXPECT_EQ(port("phys_state"), "3: Disabled");
}

TEST_F(EventCommand, PortUpShowsInSysfs) {
  event("port-down");
  event("port-up");
  EXPECT_EQ(port("state"), "4: ACTIVE");
  EXPECT_EQ(port("phys_state"), "5: LinkUp");
}

TEST_F(EventCommand, OfAPortThatIsDownAlreadyDoesNothing) {
  event("port-down");
  const Outcome outcome = event("port-down");
  EXPECT_TRUE(outcome.exited_with(0));
  EXPECT_EQ(outcome.out, "verbena0: the port is down already\n");
}

TEST_F(EventCommand, TheNodeStaysTheSame) {
  event("port-down");
  verbena({"run", "--", "true"});
  EXPECT_EQ(port("state"), "1: DOWN");
}

TEST_F(EventCommand, TakesTheNodeOfTheEnvironment) {
  EXPECT_EQ(verbena({"run", "--node", "mine", "--", VERBENA_COMMAND, "event", "verbena0", "port-down"}).out,
            "verbena0: port-down, 0 processes on the node\n");
  EXPECT_EQ(port("state"), "4: ACTIVE");
}

TEST_F(EventCommand, RefusesADeviceThatIsNotThere) {
  const Outcome outcome = event("port-down", "verbena1");
  EXPECT_TRUE(outcome.exited_with(1));
  EXPECT_EQ(outcome.err, "verbena: node " + node_ + " has no device or port verbena1: it has verbena0\n");
}

TEST_F(EventCommand, RefusesANodeThatIsNotThere) {
  const Outcome outcome = verbena({"event", "verbena0", "port-down", "--node", "none"});
  EXPECT_TRUE(outcome.exited_with(1));
  EXPECT_NE(outcome.err.find("/none-1-eth: no program runs there; verbena status --all shows the nodes"),
            std::string::npos)
      << outcome.err;
}

TEST_F(EventCommand, RefusesAnUnknownEvent) { EXPECT_TRUE(event("port-sideways").exited_with(2)); }

TEST_F(EventCommand, NeedsBothWords) { EXPECT_TRUE(verbena({"event", "verbena0"}).exited_with(2)); }

}  // namespace
}  // namespace verbena::test
