// SPDX-License-Identifier: BSD-2-Clause
//
// Rates between two looks at a node, and what `verbena top` and `verbena metrics` make of them.
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <nlohmann/json.hpp>

#include "tool/activity.h"
#include "tool/metrics_text.h"
#include "tool/top_view.h"

namespace verbena::tool {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

QpSnapshot qp(uint32_t qpn, uint64_t requests_out, uint64_t bytes_out) {
  QpSnapshot qp;
  qp.qpn = qpn;
  qp.type = IBV_QPT_RC;
  qp.state = IBV_QPS_RTS;
  qp.requests_out = requests_out;
  qp.bytes_out = bytes_out;
  return qp;
}

ProcessSnapshot process(uint32_t slot, std::vector<QpSnapshot> qps) {
  ProcessSnapshot process;
  process.slot = slot;
  process.generation = 1;
  process.pid = static_cast<int32_t>(100 + slot);
  process.program = "program";
  process.qps = std::move(qps);
  return process;
}

std::vector<NodeSnapshot> node(uint64_t seconds, std::vector<ProcessSnapshot> processes) {
  NodeSnapshot node;
  node.path = "/n";
  node.taken_at = seconds * kSecond;
  node.processes = std::move(processes);
  return {node};
}

TEST(Activity, IsWhatHasBeenAddedInASecond) {
  const Activity activity = activity_between(node(10, {process(0, {qp(7, 100, 1000)})}),
                                             node(12, {process(0, {qp(7, 300, 5000)})}));
  EXPECT_DOUBLE_EQ(activity.seconds, 2);
  ASSERT_EQ(activity.qps.size(), 1u);
  EXPECT_DOUBLE_EQ(activity.qps[0].rates.requests_out, 100);
  EXPECT_DOUBLE_EQ(activity.qps[0].rates.bytes_out, 2000);
  ASSERT_EQ(activity.processes.size(), 1u);
  EXPECT_DOUBLE_EQ(activity.processes[0].rates.bytes_out, 2000);
}

TEST(Activity, HasNoRatesAfterTheFirstLook) {
  const Activity activity = activity_between({}, node(12, {process(0, {qp(7, 300, 5000)})}));
  EXPECT_EQ(activity.seconds, 0);
  ASSERT_EQ(activity.qps.size(), 1u);
  EXPECT_EQ(activity.qps[0].rates.requests_out, 0);
}

TEST(Activity, CountsANewQueuePairFromNothing) {
  const Activity activity = activity_between(node(10, {process(0, {qp(7, 100, 0)})}),
                                             node(11, {process(0, {qp(7, 100, 0), qp(8, 50, 0)})}));
  ASSERT_EQ(activity.qps.size(), 2u);
  EXPECT_EQ(activity.qps[0].rates.requests_out, 0);
  EXPECT_EQ(activity.qps[1].rates.requests_out, 50);
}

TEST(Activity, FindsAQueuePairThatHasMoved) {
  const Activity activity = activity_between(node(10, {process(0, {qp(6, 0, 0), qp(7, 100, 0)})}),
                                             node(11, {process(0, {qp(7, 130, 0)})}));
  ASSERT_EQ(activity.qps.size(), 1u);
  EXPECT_EQ(activity.qps[0].rates.requests_out, 30);
}

TEST(Activity, TellsTwoProcessesOfOneSlotApart) {
  auto later = process(0, {qp(7, 20, 0)});
  later.generation = 2;
  const Activity activity = activity_between(node(10, {process(0, {qp(7, 100, 0)})}), node(11, {later}));
  EXPECT_EQ(activity.qps[0].rates.requests_out, 20);
}

TEST(Activity, OfACounterThatHasBegunAgainIsNotNegative) {
  const Activity activity =
      activity_between(node(10, {process(0, {qp(7, 100, 0)})}), node(11, {process(0, {qp(7, 5, 0)})}));
  EXPECT_EQ(activity.qps[0].rates.requests_out, 5);
}

TEST(Activity, TakesTheFullerOfTwoCqs) {
  auto one = process(0, {qp(7, 0, 0)});
  one.qps[0].send_cq = 1;
  one.qps[0].recv_cq = 2;
  one.cqs.resize(3);
  for (uint32_t i = 0; i < 3; ++i) one.cqs[i].index = i, one.cqs[i].capacity = 10, one.cqs[i].entries = 3 * i;
  const Activity activity = activity_between({}, node(1, {one}));
  EXPECT_DOUBLE_EQ(activity.qps[0].cq_fill, 0.6);
}

TEST(Activity, IsSortedLargestFirstOrReversed) {
  const auto now = node(11, {process(0, {qp(1, 10, 1), qp(2, 20, 2), qp(3, 5, 3)})});
  Activity activity = activity_between(node(10, {}), now);
  sort_activity(now, SortBy::kRequests, false, &activity);
  EXPECT_EQ(activity.qps[0].qp, 1u);
  EXPECT_EQ(activity.qps[2].qp, 2u);
  sort_activity(now, SortBy::kRequests, true, &activity);
  EXPECT_EQ(activity.qps[0].qp, 2u);
}

// ---- the screen ----

struct Screen {
  std::vector<NodeSnapshot> nodes;
  Activity activity;
  TopState state;

  explicit Screen(size_t qps) {
    std::vector<QpSnapshot> list;
    for (size_t i = 0; i < qps; ++i) list.push_back(qp(static_cast<uint32_t>(0x100 + i), 0, 0));
    nodes = node(1, {process(0, list)});
    activity = activity_between({}, nodes);
  }
  std::vector<TopLine> lines(size_t rows) const { return top_lines(nodes, activity, state, rows); }
  void press(TopKey key) { tool::press(key, shown_qps(nodes, activity), 20, &state); }
};

const TopLine* selected(const std::vector<TopLine>& lines) {
  for (const TopLine& line : lines)
    if (line.style == TopLine::Style::kSelected) return &line;
  return nullptr;
}

TEST(TopView, FitsAnyHeight) {
  const Screen screen(50);
  for (size_t rows = 0; rows < 60; ++rows) EXPECT_LE(screen.lines(rows).size(), rows);
}

TEST(TopView, SelectsTheFirstQueuePair) {
  const auto lines = Screen(3).lines(30);
  ASSERT_NE(selected(lines), nullptr);
  EXPECT_NE(selected(lines)->text.find("0x000100"), std::string::npos);
}

TEST(TopView, ScrollsToTheSelectedQueuePair) {
  Screen screen(50);
  for (int i = 0; i < 49; ++i) screen.press(TopKey::kDown);
  const auto lines = screen.lines(20);
  ASSERT_NE(selected(lines), nullptr);
  EXPECT_NE(selected(lines)->text.find("0x000131"), std::string::npos);
  screen.press(TopKey::kDown);  // the last one stays selected
  EXPECT_EQ(screen.state.selected.qpn, 0x131u);
}

TEST(TopView, LooksIntoAQueuePair) {
  Screen screen(3);
  screen.press(TopKey::kDown);
  screen.press(TopKey::kEnter);
  const auto lines = screen.lines(30);
  EXPECT_NE(lines[1].text.find("QP 0x000101"), std::string::npos) << lines[1].text;
  screen.press(TopKey::kBack);
  EXPECT_NE(selected(screen.lines(30)), nullptr);
}

TEST(TopView, WithoutQueuePairsTakesAnyKey) {
  Screen screen(0);
  for (const TopKey key :
       {TopKey::kUp, TopKey::kDown, TopKey::kPageUp, TopKey::kPageDown, TopKey::kEnter, TopKey::kBack,
        TopKey::kSort, TopKey::kReverse, TopKey::kPause, TopKey::kFaster, TopKey::kSlower}) {
    screen.press(key);
    EXPECT_FALSE(screen.lines(10).empty());
  }
  EXPECT_FALSE(screen.state.quits);
  screen.press(TopKey::kQuit);
  EXPECT_TRUE(screen.state.quits);
}

TEST(TopView, KeepsTheIntervalWithinLimits) {
  Screen screen(1);
  for (int i = 0; i < 20; ++i) screen.press(TopKey::kFaster);
  EXPECT_DOUBLE_EQ(screen.state.interval, 0.1);
  for (int i = 0; i < 20; ++i) screen.press(TopKey::kSlower);
  EXPECT_DOUBLE_EQ(screen.state.interval, 60);
}

TEST(TopView, AsJsonIsOneLine) {
  const Screen screen(2);
  const std::string text = top_as_json(screen.nodes, screen.activity);
  EXPECT_EQ(text.find('\n'), text.size() - 1);
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["qps"].size(), 2u);
  EXPECT_EQ(json["processes"][0]["qps"], 2);
}

// ---- metrics ----

TEST(Metrics, StandTogetherBehindTheirHelp) {
  const Screen screen(2);
  const std::string text = metrics_as_text(screen.nodes, true);
  const std::string expected =
      "# HELP verbena_qp_requests_out_total Requests that the queue pair has sent.\n"
      "# TYPE verbena_qp_requests_out_total counter\n"
      "verbena_qp_requests_out_total{node=\"/"
      "n\",pid=\"100\",program=\"program\",device=\"0\",qpn=\"0x000100\","
      "type=\"RC\"} 0\n"
      "verbena_qp_requests_out_total{node=\"/"
      "n\",pid=\"100\",program=\"program\",device=\"0\",qpn=\"0x000101\","
      "type=\"RC\"} 0\n";
  EXPECT_NE(text.find(expected), std::string::npos) << text;
}

TEST(Metrics, OfEachQueuePairAreNotThereUnlessAskedFor) {
  EXPECT_EQ(metrics_as_text(Screen(2).nodes, false).find("verbena_qp_"), std::string::npos);
}

TEST(Metrics, TellWhatANodeWithPacketsHasDropped) {
  Screen screen(1);
  screen.nodes[0].path = "/n";
  screen.nodes[0].packet_drops[static_cast<size_t>(PacketDrop::kForeign)] = 7;
  EXPECT_EQ(metrics_as_text(screen.nodes, false).find("verbena_packets_dropped"), std::string::npos);
  screen.nodes[0].devices.network.enabled = 1;
  screen.nodes[0].devices.network.kind = NetworkKind::kRoce;
  EXPECT_NE(metrics_as_text(screen.nodes, false)
                .find("verbena_packets_dropped_total{node=\"/n\",reason=\"from_strangers\"} 7\n"),
            std::string::npos);
}

TEST(Metrics, TellWhatThePortsHaveCounted) {
  Screen screen(1);
  screen.nodes[0].path = "/n";
  screen.nodes[0].devices.count = 1;
  screen.nodes[0].port_counts[0][static_cast<size_t>(PortCount::kSentOctets)] = 4000;
  screen.nodes[0].processes[0].qps[0].traffic[static_cast<size_t>(PortCount::kSentOctets)] = 40;
  const std::string text = metrics_as_text(screen.nodes, false);
  EXPECT_NE(
      text.find(
          "# TYPE verbena_port_xmit_data_total counter\nverbena_port_xmit_data_total{node=\"/n\",device="),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("port=\"1\"} 1010\n"), std::string::npos) << text;
  EXPECT_NE(text.find("verbena_port_link_downed_total{"), std::string::npos);
}

TEST(Metrics, EscapeLabels) {
  Screen screen(1);
  screen.nodes[0].path = "a\"b\\c\nd";
  EXPECT_NE(metrics_as_text(screen.nodes, false).find("{node=\"a\\\"b\\\\c\\nd\"} 1\n"), std::string::npos);
}

TEST(Metrics, TellANodeThatCannotBeRead) {
  NodeSnapshot broken;
  broken.path = "/x";
  broken.problem = "not a node";
  EXPECT_NE(metrics_as_text({broken}, false).find("verbena_node_readable{node=\"/x\"} 0\n"),
            std::string::npos);
}

}  // namespace
}  // namespace verbena::tool
