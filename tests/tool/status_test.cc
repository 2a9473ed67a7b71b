// SPDX-License-Identifier: BSD-2-Clause
//
// verbena status, on processes whose shared memory the test fills in by hand.
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "adapter/clock.h"
#include "adapter/layout.h"
#include "cm/id_table.h"
#include "command_under_test.h"
#include "fabric/node.h"
#include "fabric/node_membership.h"

namespace verbena::test {
namespace {

using Json = nlohmann::json;

// A process on a node, as an adapter is, until it is killed.
class Inhabitant {
 public:
  explicit Inhabitant(const std::string& node, const std::function<void(NodeMembership&)>& furnish = {}) {
    int ready[2];
    if (pipe(ready) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      static auto* node_membership = new NodeMembership;
      if (node_membership->enter(node, nullptr, nullptr) != 0) _exit(1);
      if (furnish) furnish(*node_membership);
      const char byte = 0;
      if (write(ready[1], &byte, 1) != 1) _exit(2);
      for (;;) pause();
    }
    close(ready[1]);
    pollfd watched{ready[0], POLLIN, 0};
    char byte;
    if (poll(&watched, 1, 30'000) != 1 || read(ready[0], &byte, 1) != 1) ADD_FAILURE() << "nobody moved in";
    close(ready[0]);
  }
  Inhabitant(const Inhabitant&) = delete;
  Inhabitant& operator=(const Inhabitant&) = delete;
  ~Inhabitant() { die(); }

  pid_t pid() const { return pid_; }
  void stop() const {
    kill(pid_, SIGSTOP);
    int status;
    waitpid(pid_, &status, WUNTRACED);
  }
  void die() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
};

class StatusCommand : public CommandTest {
 protected:
  void SetUp() override {
    CommandTest::SetUp();
    ASSERT_TRUE(verbena({"run", "--node", "n", "--", "true"}).exited_with(0));
    node_ = folder_ + "/verbena-" + std::to_string(geteuid()) + "/n-1-eth";
    hold(node_);
  }
  Json look() const {
    const Outcome outcome = verbena({"status", "--json", "--node", "n"});
    EXPECT_TRUE(outcome.exited_with(0)) << outcome.err;
    return Json::parse(outcome.out, nullptr, false);
  }
  Json processes() const { return look()["nodes"][0]["processes"]; }

  std::string node_;
};

void furnish_qp(NodeMembership& membership) {
  OwnSegment& segment = membership.segment();
  ASSERT_EQ(segment.commit(kQpTableOffset, 2 * sizeof(SharedQp)), 0);
  SharedQp& qp = *segment.view().qp(1);
  qp.qpn = 0x1234;
  qp.type = IBV_QPT_RC;
  qp.dest_qpn = 0x4321;
  qp.dest_slot = membership.slot();
  qp.dest_slot_generation = membership.generation();
  qp.sq_posted = 9;
  qp.sq_completed = 7;
  qp.rq_posted = 5;
  qp.rq_taken = 1;
  qp.requests_out = 9;
  qp.bytes_out = 900;
  qp.lost = 11;
  qp.in_use = 1;
  qp.responder_state = ResponderState{3, IBV_QPS_RTS}.pack();
  segment.view().header().qp_high_water = 2;
}

void furnish_cq(NodeMembership& membership) {
  OwnSegment& segment = membership.segment();
  ASSERT_EQ(segment.commit(kCqTableOffset, sizeof(SharedCq)), 0);
  SharedCq& cq = *segment.view().cq(0);
  cq.rings[0].order = 4;
  cq.rings[0].tail = 6;
  cq.rings[0].head = 2;
  cq.armed = Arming{Armed::kSolicited, 7}.pack();
  cq.alive = 1;
  segment.view().header().cq_high_water = 1;
}

void furnish_srq(NodeMembership& membership) {
  OwnSegment& segment = membership.segment();
  ASSERT_EQ(segment.commit(kSrqTableOffset, sizeof(SharedSrq)), 0);
  SharedSrq& srq = *segment.view().srq(0);
  srq.order = 5;
  srq.max_sge = 3;
  srq.head = 40;
  srq.posted = 47;
  srq.limit = 4;
  srq.in_use = 1;
  segment.view().header().srq_high_water = 1;
}

// Two ids: one listens and has joined a group, the other is connected to the process itself.
void furnish_cm(NodeMembership& membership) {
  static NodeDirectory directory;
  static cm::IdTable table;
  ASSERT_EQ(directory.open(directory_path(membership.node()).c_str()), 0);
  ASSERT_EQ(table.open(directory, membership.node()), 0);
  const cm::Owner owner{membership.slot(), membership.generation()};
  cm::IdFacts server{};
  sockaddr_in address{};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(7471);
  server.local = cm::Address::of(address);
  server.number = 1;
  server.space = cm::PortSpace::kTcp;
  server.qp_type = IBV_QPT_RC;
  server.flags = cm::kIdFamilyOnly;
  server.device = cm::kNoDevice;
  server.peer = cm::kNoPeer;
  cm::IdHandle id;
  ASSERT_EQ(table.add(owner, server, &id), 0);
  ASSERT_EQ(table.bind(id, &server), 0);
  ASSERT_EQ(table.listen(id, &server, 12), 0);
  ASSERT_EQ(table.join(id, {0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9}, true), 0);
  cm::IdFacts client = server;
  client.number = 2;
  client.local = {};
  client.remote = cm::Address::of(address);
  client.state = cm::IdState::kConnected;
  client.device = 0;
  client.qpn = 0x1234;
  client.peer = static_cast<uint16_t>(membership.slot());
  ASSERT_EQ(table.add(owner, client, &id), 0);
}

void furnish_mr(NodeMembership& membership) {
  OwnSegment& segment = membership.segment();
  ASSERT_EQ(segment.commit(kMrTableOffset, 2 * sizeof(SharedMr)), 0);
  SharedMr& mr = *segment.view().shared_mr(1);
  mr.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
  mr.length = 4096;
  mr.valid = 0x100 | 7;
  segment.view().header().mr_high_water = 2;
}

TEST_F(StatusCommand, ShowsAnEmptyNode) { EXPECT_EQ(processes(), Json::array()); }

TEST_F(StatusCommand, ShowsTheDevices) { EXPECT_EQ(look()["nodes"][0]["devices"][0]["name"], "verbena0"); }

TEST_F(StatusCommand, ShowsTheMembersOfTheNode) {
  const Inhabitant somebody(node_);
  const Json seen = processes();
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0]["pid"], somebody.pid());
  EXPECT_FALSE(seen[0].contains("problem")) << seen[0]["problem"];
}

TEST_F(StatusCommand, ShowsManyProcesses) {
  const Inhabitant one(node_);
  const Inhabitant two(node_);
  EXPECT_EQ(processes().size(), 2u);
}

TEST_F(StatusCommand, ShowsQpsWithStateAndPeer) {
  const Inhabitant somebody(node_, furnish_qp);
  const Json qps = processes()[0]["qps"];
  ASSERT_EQ(qps.size(), 1u);
  EXPECT_EQ(qps[0]["qpn"], 0x1234);
  EXPECT_EQ(qps[0]["type"], "RC");
  EXPECT_EQ(qps[0]["state"], "RTS");
  EXPECT_EQ(qps[0]["peer"]["qpn"], 0x4321);
  EXPECT_EQ(qps[0]["peer"]["pid"], somebody.pid());
}

TEST_F(StatusCommand, ShowsWhatIsOutstanding) {
  const Inhabitant somebody(node_, furnish_qp);
  const Json qps = processes()[0]["qps"];
  ASSERT_EQ(qps.size(), 1u);
  EXPECT_EQ(qps[0]["sends_outstanding"], 2);
  EXPECT_EQ(qps[0]["receives_posted"], 4);
}

TEST_F(StatusCommand, SumsTheCountersOfAProcess) {
  const Inhabitant somebody(node_, furnish_qp);
  const Json counters = processes()[0]["counters"];
  EXPECT_EQ(counters["requests_out"], 9);
  EXPECT_EQ(counters["bytes_out"], 900);
}

TEST_F(StatusCommand, ShowsWhatWasLostOnItsWayOut) {
  const Inhabitant somebody(node_, furnish_qp);
  EXPECT_EQ(processes()[0]["qps"][0]["lost"], 11);
  const std::string text = verbena({"status", "--node", "n"}).out;
  EXPECT_NE(text.find("LOST"), std::string::npos) << text;
}

TEST_F(StatusCommand, TellsAPeerThatIsGone) {
  const Inhabitant somebody(node_, [](NodeMembership& membership) {
    furnish_qp(membership);
    membership.segment().view().qp(1)->dest_slot_generation = membership.generation() + 1;
  });
  const Json peer = processes()[0]["qps"][0]["peer"];
  EXPECT_EQ(peer["alive"], false);
  EXPECT_FALSE(peer.contains("pid"));
}

// By its address: the slot in shared memory is that of this end.
TEST_F(StatusCommand, ShowsAPeerOfAnotherNodeByItsAddress) {
  const Inhabitant somebody(node_, [](NodeMembership& membership) {
    furnish_qp(membership);
    membership.directory().header().devices.network.enabled = 1;
    SharedQp& qp = *membership.segment().view().qp(1);
    qp.dest_index = kRemoteIndex;
    const uint8_t gid[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 7};
    for (size_t i = 0; i < 4; ++i) {
      uint32_t word;
      std::memcpy(&word, gid + 4 * i, sizeof word);
      qp.path_words[i] = word;
    }
  });
  EXPECT_EQ(processes()[0]["qps"][0]["peer"], (Json{{"qpn", 0x4321}, {"address", "192.0.2.7"}}));
}

TEST_F(StatusCommand, ShowsCqs) {
  const Inhabitant somebody(node_, furnish_cq);
  const Json cqs = processes()[0]["cqs"];
  ASSERT_EQ(cqs.size(), 1u);
  EXPECT_EQ(cqs[0]["capacity"], 16);
  EXPECT_EQ(cqs[0]["entries"], 4);
  EXPECT_EQ(cqs[0]["armed"], "solicited");
}

TEST_F(StatusCommand, ShowsSrqs) {
  const Inhabitant somebody(node_, furnish_srq);
  const Json srqs = processes()[0]["srqs"];
  ASSERT_EQ(srqs.size(), 1u);
  EXPECT_EQ(srqs[0]["capacity"], 32);
  EXPECT_EQ(srqs[0]["posted"], 7);
  EXPECT_EQ(srqs[0]["limit"], 4);
}

TEST_F(StatusCommand, ShowsWhatAQpHasDropped) {
  const Inhabitant somebody(node_, [](NodeMembership& membership) {
    furnish_qp(membership);
    membership.segment().view().qp(1)->dropped = 5;
    membership.segment().view().qp(1)->qkey_violations = 2;
  });
  const Json qp = processes()[0]["qps"][0];
  EXPECT_EQ(qp["dropped"], 5);
  EXPECT_EQ(qp["qkey_violations"], 2);
}

TEST_F(StatusCommand, ShowsDatagramsThatNoQpTakes) {
  NodeDirectory directory;
  ASSERT_EQ(directory.open(directory_path(node_).c_str()), 0);
  directory.header().stray_datagrams[0] = 3;
  EXPECT_EQ(look()["nodes"][0]["devices"][0]["stray_datagrams"], 3);
  EXPECT_NE(verbena({"status", "--node", "n"}).out.find(", verbena0 dropped 3 datagrams that no QP takes\n"),
            std::string::npos);
}

TEST_F(StatusCommand, ShowsAPortThatIsDown) {
  ASSERT_TRUE(verbena({"event", "verbena0", "port-down", "--node", "n"}).exited_with(0));
  EXPECT_EQ(look()["nodes"][0]["devices"][0]["port_state"], "down");
  EXPECT_NE(verbena({"status", "--node", "n"}).out.find(", verbena0's port is down\n"), std::string::npos);
}

TEST_F(StatusCommand, ShowsTheProfile) {
  ASSERT_TRUE(verbena({"run", "--profile", "rxe", "--", "true"}).exited_with(0));
  const Outcome text = verbena({"status", "--profile", "rxe"});
  EXPECT_NE(text.out.find(", profile rxe\n"), std::string::npos) << text.out;
}

TEST_F(StatusCommand, ShowsMrs) {
  const Inhabitant somebody(node_, furnish_mr);
  const Json mrs = processes()[0]["mrs"];
  ASSERT_EQ(mrs.size(), 1u);
  EXPECT_EQ(mrs[0]["length"], 4096);
  EXPECT_NE(mrs[0]["lkey"], mrs[0]["rkey"]);
  EXPECT_EQ(mrs[0]["access"], (Json{"LOCAL_WRITE", "REMOTE_READ"}));
}

// ---- why a program may hang, and how it failed ----

constexpr uint64_t kSecond = 1'000'000'000;

TEST_F(StatusCommand, ShowsTheLastErrorOfAQp) {
  const Inhabitant somebody(node_, [](NodeMembership& membership) {
    furnish_qp(membership);
    SharedQp& qp = *membership.segment().view().qp(1);
    qp.error_time = wall_clock_ns() - 5 * kSecond;
    qp.error_wr_id = 0x99;
    qp.error = ErrorWord{IBV_WC_REM_ACCESS_ERR, 0x93, false}.pack();
  });
  const Json error = processes()[0]["qps"][0]["last_error"];
  EXPECT_EQ(error["status"], IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(error["status_name"], "REM_ACCESS_ERR");
  EXPECT_EQ(error["vendor_err"], 0x93);
  EXPECT_EQ(error["vendor_err_name"], "rkey_out_of_range");
  EXPECT_EQ(error["wr_id"], 0x99);
  EXPECT_EQ(error["queue"], "send");
  EXPECT_EQ(std::string(error["time"]).size(), std::string("2026-11-24T21:03:11Z").size());
  const std::string text = verbena({"status", "--node", "n"}).out;
  EXPECT_NE(text.find("QP 0x001234: last error 2"), std::string::npos) << text;
  EXPECT_NE(text.find("wr_id 0x99 of the send queue: REM_ACCESS_ERR (10), vendor_err 0x93"),
            std::string::npos)
      << text;
}

TEST_F(StatusCommand, ShowsAReceiveErrorThatIsNotPolled) {
  const Inhabitant somebody(node_, [](NodeMembership& membership) {
    furnish_qp(membership);
    SharedQp& qp = *membership.segment().view().qp(1);
    qp.error_time = 5;
    qp.receive_error_time = wall_clock_ns();
    qp.receive_error = ErrorWord{IBV_WC_LOC_LEN_ERR, 0x13, true}.pack();
  });
  const Json error = processes()[0]["qps"][0]["last_error"];
  EXPECT_EQ(error["status_name"], "LOC_LEN_ERR");
  EXPECT_EQ(error["queue"], "receive");
  EXPECT_TRUE(error["wr_id"].is_null());
}

TEST_F(StatusCommand, ShowsNoErrorWhereThereWasNone) {
  const Inhabitant somebody(node_, furnish_qp);
  const Json qp = processes()[0]["qps"][0];
  EXPECT_TRUE(qp["last_error"].is_null());
  EXPECT_TRUE(qp["waits_for"].is_null());
}

TEST_F(StatusCommand, ShowsASendThatWaitsForAReceiveWithoutEnd) {
  const auto furnish = [](uint64_t requests_out) {
    return [requests_out](NodeMembership& membership) {
      furnish_qp(membership);
      SharedQp& qp = *membership.segment().view().qp(1);
      qp.rnr_since = wall_clock_ns() - 7 * kSecond;
      qp.rnr_requests_out = requests_out;
      qp.rnr_is_endless = 1;
    };
  };
  {
    const Inhabitant somebody(node_, furnish(9));
    const Json wait = processes()[0]["qps"][0]["waits_for"];
    EXPECT_EQ(wait["without_end"], true);
    EXPECT_GE(wait["seconds"], 7);
    const std::string text = verbena({"status", "--node", "n"}).out;
    EXPECT_NE(text.find("s for its peer to post a receive request; rnr_retry is 7"), std::string::npos)
        << text;
  }
  const Inhabitant somebody(node_, furnish(8));  // one more request is done since
  EXPECT_TRUE(processes()[0]["qps"][0]["waits_for"].is_null());
}

TEST_F(StatusCommand, ShowsReceivesThatNoMessageComesFor) {
  const Inhabitant somebody(node_, [](NodeMembership& membership) {
    furnish_qp(membership);
    SharedQp& qp = *membership.segment().view().qp(1);
    qp.rq_taken = 0;
    qp.state_since = wall_clock_ns() - 3 * kSecond;
    qp.dest_qpn = 0x1234;  // itself, which waits
  });
  const Json unmatched = processes()[0]["qps"][0]["unmatched_receives"];
  EXPECT_GE(unmatched["seconds"], 3);
  EXPECT_EQ(unmatched["why"], "its peer QP 0x001234 has 2 requests that are not polled as complete");
  const std::string text = verbena({"status", "--node", "n"}).out;
  EXPECT_NE(text.find("QP 0x001234: 5 receive requests are posted, and no message has come in"),
            std::string::npos)
      << text;
}

TEST_F(StatusCommand, ShowsACqWhoseWaiterWouldSleepOn) {
  const auto furnish = [](Armed armed, uint64_t read, uint64_t raised = 2) {
    return [armed, read, raised](NodeMembership& membership) {
      furnish_cq(membership);
      SharedCq& cq = *membership.segment().view().cq(0);
      cq.channel = 1;
      cq.raised = raised;
      cq.events_read = read;
      cq.armed = Arming{armed, 2}.pack();
    };
  };
  {
    const Inhabitant somebody(node_, furnish(Armed::kNo, 2));
    EXPECT_EQ(processes()[0]["cqs"][0]["waiter_sleeps_on"], true);
    const std::string text = verbena({"status", "--node", "n"}).out;
    EXPECT_NE(text.find("CQ 0: 4 completions are not polled, it is not armed, and no event is unread"),
              std::string::npos)
        << text;
  }
  {
    const Inhabitant never_armed(node_, furnish(Armed::kNo, 0, 0));
    EXPECT_EQ(processes()[0]["cqs"][0]["waiter_sleeps_on"], true);
  }
  for (const auto& awake : {furnish(Armed::kNext, 2), furnish(Armed::kNo, 1)}) {
    const Inhabitant somebody(node_, awake);
    EXPECT_EQ(processes()[0]["cqs"][0]["waiter_sleeps_on"], false);
  }
}

TEST_F(StatusCommand, SaysTheSameInATable) {
  const Inhabitant somebody(node_, furnish_qp);
  const std::string text = verbena({"status", "--node", "n"}).out;
  for (const std::string& word : {std::string("0x001234"), std::string("RTS"), std::string("verbena0"),
                                  "0x004321 of " + std::to_string(somebody.pid())})
    EXPECT_NE(text.find(word), std::string::npos) << word << " in\n" << text;
}

TEST_F(StatusCommand, DoesNotWaitForAStoppedProcess) {
  const Inhabitant somebody(node_, furnish_qp);
  somebody.stop();
  const Json seen = processes();
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(std::string(seen[0]["problem"]).rfind("not answering", 0), 0u);
}

TEST_F(StatusCommand, ShowsOthersBesideAStoppedProcess) {
  const Inhabitant stopped(node_);
  const Inhabitant awake(node_, furnish_qp);
  stopped.stop();
  int with_qps = 0;
  for (const Json& process : processes()) with_qps += process.contains("qps") ? 1 : 0;
  EXPECT_EQ(with_qps, 1);
}

TEST_F(StatusCommand, SaysThatAProcessDied) {
  Inhabitant somebody(node_);
  somebody.die();
  const Json seen = processes();
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0]["problem"], "dead, not yet cleaned up");
}

TEST_F(StatusCommand, BelievesNoNumberOfADamagedSegment) {
  const Inhabitant somebody(node_, [](NodeMembership& membership) {
    furnish_qp(membership);
    furnish_cq(membership);
    membership.segment().view().qp(1)->responder_state = ~uint64_t{0};
    membership.segment().view().qp(1)->dest_slot = 0xffffffff;
    membership.segment().view().qp(1)->device = 0xffffffff;
    membership.segment().view().cq(0)->rings[0].order = 0xffffffff;
    membership.segment().view().header().qp_high_water = 0xffffffff;
    membership.segment().view().header().cq_high_water = 0xffffffff;
  });
  const Json seen = processes();
  ASSERT_EQ(seen.size(), 1u);
  ASSERT_EQ(seen[0]["qps"].size(), 1u);
  EXPECT_EQ(seen[0]["qps"][0]["state"], "255");
  EXPECT_EQ(seen[0]["cqs"].size(), 0u);
}

TEST_F(StatusCommand, RefusesASegmentOfAnotherVersion) {
  const Inhabitant somebody(node_, [](NodeMembership& membership) {
    membership.segment().view().header().layout_version = kLayoutVersion + 1;
  });
  const Json seen = processes();
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0]["problem"], "its segment is damaged, or another version's");
}

TEST_F(StatusCommand, ShowsAllNodesWhenNoneIsNamed) {
  ASSERT_TRUE(verbena({"run", "--node", "m", "--", "true"}).exited_with(0));
  const Json seen = Json::parse(verbena({"status", "--json"}).out, nullptr, false);
  EXPECT_EQ(seen["nodes"].size(), 2u);
}

TEST_F(StatusCommand, ShowsTheNodeOfTheEnvironment) {
  ASSERT_TRUE(verbena({"run", "--node", "m", "--", "true"}).exited_with(0));
  environment_["VERBENA_NODE"] = node_;
  const Json seen = Json::parse(verbena({"status", "--json"}).out, nullptr, false);
  ASSERT_EQ(seen["nodes"].size(), 1u);
  EXPECT_EQ(seen["nodes"][0]["path"], node_);
}

TEST_F(StatusCommand, SaysThatThereIsNoSuchNode) {
  const Outcome outcome = verbena({"status", "--node", "nowhere"});
  EXPECT_TRUE(outcome.exited_with(1));
  EXPECT_NE(outcome.out.find("No such file"), std::string::npos) << outcome.out;
}

TEST_F(StatusCommand, IsContentWithoutNodes) {
  environment_["TMPDIR"] = folder_ + "/empty";
  const Outcome outcome = verbena({"status"});
  EXPECT_TRUE(outcome.exited_with(0));
  EXPECT_EQ(outcome.out.rfind("no nodes", 0), 0u);
}

TEST_F(StatusCommand, ShowsAListener) {
  const Inhabitant process(node_, furnish_cm);
  const Json id = processes()[0]["cm_ids"][0];
  EXPECT_EQ(id["id"], 1);
  EXPECT_EQ(id["state"], "listening");
  EXPECT_EQ(id["local"], "127.0.0.1:7471");
  EXPECT_EQ(id["port_space"], "TCP");
  EXPECT_EQ(id["backlog"], 12);
  EXPECT_EQ(id["peer"], nullptr);
}

TEST_F(StatusCommand, ShowsAConnectedId) {
  const Inhabitant process(node_, furnish_cm);
  const Json id = processes()[0]["cm_ids"][1];
  EXPECT_EQ(id["state"], "connected");
  EXPECT_EQ(id["remote"], "127.0.0.1:7471");
  EXPECT_EQ(id["qpn"], 0x1234);
  EXPECT_EQ(id["peer"]["pid"], process.pid());
  EXPECT_EQ(id["backlog"], nullptr);
}

TEST_F(StatusCommand, ShowsAJoinedGroup) {
  const Inhabitant process(node_, furnish_cm);
  const Json group = processes()[0]["cm_groups"][0];
  EXPECT_EQ(group["mgid"], "ff02::9");
  EXPECT_EQ(group["id"], 1);
  EXPECT_EQ(group["send_only"], true);
}

TEST_F(StatusCommand, ShowsIdsOfAStoppedProcess) {
  const Inhabitant process(node_, furnish_cm);
  process.stop();
  EXPECT_EQ(processes()[0]["cm_ids"].size(), 2u);
}

TEST_F(StatusCommand, ShowsNoIdsOfTheDead) {
  Inhabitant process(node_, furnish_cm);
  process.die();
  EXPECT_TRUE(processes()[0]["cm_ids"].empty());
}

TEST_F(StatusCommand, ShowsIdsAndGroupsAsTables) {
  const Inhabitant process(node_, furnish_cm);
  const std::string text = verbena({"status", "--node", "n"}).out;
  EXPECT_NE(text.find("CM ID"), std::string::npos) << text;
  EXPECT_NE(text.find("127.0.0.1:7471"), std::string::npos) << text;
  EXPECT_NE(text.find("ff02::9"), std::string::npos) << text;
}

TEST_F(StatusCommand, TellsATableThatIsDamaged) {
  const Inhabitant process(node_, furnish_cm);
  std::filesystem::resize_file(node_ + "/cm-ids", 4096);
  EXPECT_NE(verbena({"status", "--node", "n"}).out.find("rdma_cm: "), std::string::npos);
}

}  // namespace
}  // namespace verbena::test
