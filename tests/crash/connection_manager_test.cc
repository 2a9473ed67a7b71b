// SPDX-License-Identifier: BSD-2-Clause
//
// A process with ids of the connection manager, with and without queue pairs, is killed or stopped at every
// stage of a connection, at either end.
// - Killed: its peer is told within a second, other connections go on, and its ids, ports and groups are
//   gone.
// - Stopped: it delays nobody, and is told of everything when it goes on.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <tuple>

#include "cm/id_table.h"
#include "cm_roles.h"
#include "driver.h"
#include "fabric/node.h"

namespace verbena::crash {
namespace {

constexpr int kAnswerMilliseconds = 20'000;
constexpr int64_t kOneSecond = 1'000'000'000;

// The processes that have ids, and those that have joined groups.
struct Holders {
  std::multiset<pid_t> ids, groups;

  Holders() {
    const char* node = std::getenv(kNodeVariable);
    NodeDirectory directory;
    cm::IdTable table;
    if (node == nullptr || directory.open(directory_path(node).c_str()) != 0 ||
        table.open(directory, node, true) != 0)
      throw Failure("no table of ids to look at");
    table.for_each_id([&](const cm::IdRecord& id) { ids.insert(directory.slot(id.owner.slot).pid.load()); });
    table.for_each_group(
        [&](const cm::GroupRecord& group) { groups.insert(directory.slot(group.owner.slot).pid.load()); });
  }
};

// The stage, whether the client is hit, and the form.
using Parameters = std::tuple<Stage, bool, Form>;

struct Situation {
  explicit Situation(const Parameters& parameters)
      : stage(std::get<0>(parameters)), hits_client(std::get<1>(parameters)), form(std::get<2>(parameters)) {}
  const Stage stage;
  const bool hits_client;
  const Form form;
};

std::string name_of_case(const testing::TestParamInfo<Parameters>& parameters) {
  const Situation situation(parameters.param);
  return std::string(situation.hits_client ? "Client" : "Server") + name_of(situation.stage) +
         name_of(situation.form);
}

struct ConnectionManager : testing::TestWithParam<Parameters> {
  const Situation now{GetParam()};
  Pair beside, pair;

  // Events that can tell the survivor of the end of its connection.
  std::set<std::string> end_of_it() const {
    const std::set<std::string> early = {"REJECTED", "UNREACHABLE", "CONNECT_ERROR", "DISCONNECTED"};
    if (now.stage == Stage::kEstablished) return {"DISCONNECTED"};
    return now.stage == Stage::kRequested || now.stage == Stage::kResponded ? early : std::set<std::string>{};
  }
  CmRole& survivor() const { return now.hits_client ? *pair.server : *pair.client; }
  std::unique_ptr<CmRole>& victim() { return now.hits_client ? pair.client : pair.server; }

  void SetUp() override {
    beside.go_to(Stage::kEstablished, now.form, false);
    pair.go_to(now.stage, now.form, now.hits_client);
  }
  void expect_others_undisturbed() const {
    EXPECT_EQ(beside.server->event(0), "");
    EXPECT_EQ(beside.client->event(0), "");
  }
};

class ConnectionManagerKilled : public ConnectionManager {
 protected:
  // A server is told no more of a request that it has not answered; accepting that request will fail (Linux,
  // ucma.c: ucma_event_handler, "ignore events for new connections").
  std::set<std::string> news() const {
    return now.stage == Stage::kRequested && now.hits_client ? std::set<std::string>{} : end_of_it();
  }

  // A new process takes the dead one's place and port; connecting to it succeeds.
  void replace() {
    victim() = std::make_unique<CmRole>();
    victim()->call("id tcp");
    if (now.stage < Stage::kBound) return;
    if (!now.hits_client) {
      EXPECT_EQ(victim()->call("bind 0 " + pair.port), pair.port);
      victim()->call("listen 0");
    } else if (now.stage < Stage::kListening) {
      survivor().call("listen 0");
    }
    CmRole newcomer;
    newcomer.call("id tcp");
    pair.resolve(newcomer);
    Pair::route(newcomer);
    newcomer.call("connect 0");
    CmRole& server = now.hits_client ? survivor() : *victim();
    std::string request;
    for (int i = 0; i < 4 && request.rfind("CONNECT_REQUEST", 0) != 0; ++i)
      request = server.event(kAnswerMilliseconds);
    ASSERT_EQ(request.rfind("CONNECT_REQUEST 0 0 ", 0), 0u) << request;
    server.call("accept " + request.substr(request.rfind(' ') + 1));
    newcomer.expect("CONNECT_RESPONSE 0 0");
  }
};

TEST_P(ConnectionManagerKilled, TheSurvivorIsToldWithinASecondAndNothingIsLeft) {
  const pid_t dead = victim()->pid();
  victim()->die();
  survivor().hear();
  const int64_t died = now_ns();
  if (const auto expected = news(); !expected.empty()) {
    survivor().expect_any(expected);
    EXPECT_LT(now_ns() - died, kOneSecond);
  }
  const Holders after;
  EXPECT_EQ(after.ids.count(dead), 0u);
  EXPECT_GE(after.ids.count(survivor().pid()), 1u);
  expect_others_undisturbed();
  replace();
}

constexpr Stage kStagesOfIds[] = {Stage::kCreated,         Stage::kBound,         Stage::kListening,
                                  Stage::kAddressResolved, Stage::kRouteResolved, Stage::kRequested,
                                  Stage::kResponded,       Stage::kEstablished,   Stage::kDisconnecting};
constexpr Stage kStagesOfQueuePairs[] = {Stage::kAddressResolved, Stage::kRouteResolved,
                                         Stage::kRequested,       Stage::kResponded,
                                         Stage::kEstablished,     Stage::kDisconnecting};

INSTANTIATE_TEST_SUITE_P(Ids, ConnectionManagerKilled,
                         testing::Combine(testing::ValuesIn(kStagesOfIds), testing::Bool(),
                                          testing::Values(Form::kIdsAlone)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(QueuePairs, ConnectionManagerKilled,
                         testing::Combine(testing::ValuesIn(kStagesOfQueuePairs), testing::Bool(),
                                          testing::Values(Form::kWithQueuePairs)),
                         name_of_case);

// The survivor disconnects, and the victim dies before it answers: after it was told, or while it was
// stopped.
using Unanswered = std::tuple<bool, Form, bool>;

std::string name_of_unanswered(const testing::TestParamInfo<Unanswered>& parameters) {
  const auto [hits_client, form, heard] = parameters.param;
  return std::string(hits_client ? "Client" : "Server") + name_of(form) + (heard ? "Heard" : "NotHeard");
}

struct ConnectionManagerDisconnect : testing::TestWithParam<Unanswered> {};

TEST_P(ConnectionManagerDisconnect, OfTheDeadIsOver) {
  const auto [hits_client, form, heard] = GetParam();
  Pair pair;
  pair.go_to(Stage::kEstablished, form, false);
  std::unique_ptr<CmRole>& victim = hits_client ? pair.client : pair.server;
  CmRole& survivor = hits_client ? *pair.server : *pair.client;
  const std::string victims = hits_client ? " 0" : " 1", survivors = hits_client ? " 1" : " 0";
  if (!heard) victim->stop();
  survivor.call("disconnect" + survivors);
  if (heard) victim->expect("DISCONNECTED 0" + victims);
  EXPECT_EQ(survivor.event(0), "");  // it has not answered
  const int64_t died = now_ns();
  victim->die();
  survivor.expect("DISCONNECTED 0" + survivors);
  EXPECT_LT(now_ns() - died, kOneSecond);
  survivor.expect("TIMEWAIT_EXIT 0" + survivors);
  EXPECT_EQ(Holders().ids.size(), hits_client ? 2u : 1u);
}

INSTANTIATE_TEST_SUITE_P(Of, ConnectionManagerDisconnect,
                         testing::Combine(testing::Bool(),
                                          testing::Values(Form::kIdsAlone, Form::kWithQueuePairs),
                                          testing::Bool()),
                         name_of_unanswered);

// A lookup of RDMA_PS_UDP: the client has asked, the server has not answered.
struct ConnectionManagerLookup : testing::Test {
  Pair pair;
  void SetUp() override {
    pair.server->call("id udp");
    pair.client->call("id udp");
    pair.port = pair.server->call("bind 0 0");
    pair.server->call("listen 0");
    pair.resolve(*pair.client);
    Pair::route(*pair.client);
  }
  void look_up() const {
    pair.client->call("connect 0");
    pair.server->expect("CONNECT_REQUEST 0 0 1");
  }
  // An earlier lookup does not get in the way of another one.
  void expect_an_answer_for_another(CmRole& server, const std::string& id) const {
    CmRole another;
    another.call("id udp");
    pair.resolve(another);
    Pair::route(another);
    another.call("connect 0");
    server.expect("CONNECT_REQUEST 0 0 " + id);
    server.call("accept " + id);
    another.expect("ESTABLISHED 0 0");
  }
};

TEST_F(ConnectionManagerLookup, WhoseAnswererDiesIsRejected) {
  look_up();
  const int64_t died = now_ns();
  pair.server->die();
  pair.client->expect("UNREACHABLE 2 0");  // IB_SIDR_REJECT
  EXPECT_LT(now_ns() - died, kOneSecond);
  EXPECT_EQ(Holders().ids.size(), 1u);
  pair.server = std::make_unique<CmRole>();
  pair.server->call("id udp");
  EXPECT_EQ(pair.server->call("bind 0 " + pair.port), pair.port);
  pair.server->call("listen 0");
  expect_an_answer_for_another(*pair.server, "1");
}

TEST_F(ConnectionManagerLookup, WhoseAnswererDiesBeforeItHasHeardIsRejected) {
  pair.server->stop();
  pair.client->call("connect 0");
  EXPECT_EQ(pair.client->event(0), "");
  const int64_t died = now_ns();
  pair.server->die();
  pair.client->expect("UNREACHABLE 2 0");
  EXPECT_LT(now_ns() - died, kOneSecond);
}

TEST_F(ConnectionManagerLookup, WhoseAskerDiesIsAnsweredAllTheSame) {
  look_up();
  const pid_t dead = pair.client->pid();
  pair.client->die();
  pair.server->call("accept 1");
  EXPECT_EQ(pair.server->event(0), "");
  EXPECT_EQ(Holders().ids.count(dead), 0u);
  expect_an_answer_for_another(*pair.server, "2");
}

class ConnectionManagerStopped : public ConnectionManager {
 protected:
  // Destroys all its ids. A server has the connection's id first, then the listener.
  static void give_up(CmRole& role, bool is_server) {
    if (is_server) role.call("destroy 1");
    role.call("destroy 0");
  }
  // A server is not told when a request that it has not answered is withdrawn (see above).
  std::set<std::string> news() const {
    return now.stage == Stage::kRequested && !now.hits_client ? std::set<std::string>{} : end_of_it();
  }
};

TEST_P(ConnectionManagerStopped, HoldsNobodyUpAndHearsOfTheEndLater) {
  victim()->stop();
  survivor().hear();
  give_up(survivor(), now.hits_client);
  Pair others;
  others.go_to(Stage::kEstablished, now.form, false);
  victim()->go_on();
  victim()->hear();
  if (const auto expected = news(); !expected.empty()) victim()->expect_any(expected);
  give_up(*victim(), !now.hits_client);
  expect_others_undisturbed();
}

INSTANTIATE_TEST_SUITE_P(All, ConnectionManagerStopped,
                         testing::Combine(testing::Values(Stage::kRequested, Stage::kResponded,
                                                          Stage::kEstablished, Stage::kDisconnecting),
                                          testing::Bool(),
                                          testing::Values(Form::kIdsAlone, Form::kWithQueuePairs)),
                         name_of_case);

// Commands to the stopped process wait.
TEST(ConnectionManagerStop, OfAServerDelaysTheRequest) {
  Pair pair;
  pair.go_to(Stage::kRouteResolved, Form::kWithQueuePairs, false);
  pair.server->stop();
  pair.client->call("connect 0");
  EXPECT_EQ(pair.client->event(0), "");
  pair.server->go_on();
  pair.server->expect("CONNECT_REQUEST 0 0 1");
  pair.server->call("qp 1");
  pair.server->call("accept 1");
  pair.client->expect("ESTABLISHED 0 0");
  pair.server->expect("ESTABLISHED 0 1");
}

TEST(ConnectionManagerGroups, OfTheDeadAreLeft) {
  CmRole stays, dies;
  for (CmRole* role : {&stays, &dies}) {
    role->call("id udp");
    role->call("resolve 0 1");  // a device, which loopback alone is not
    role->expect("ADDR_RESOLVED 0 0");
    role->call("join 0 239.1.2.3");
    role->expect("MULTICAST_JOIN 0 0");
  }
  const pid_t dead = dies.pid();
  ASSERT_EQ(Holders().groups.count(dead), 1u);
  dies.die();
  const Holders after;
  EXPECT_EQ(after.groups.count(dead), 0u);
  EXPECT_EQ(after.groups.count(stays.pid()), 1u);
}

// A client that connects to a server that has died is told at once, not after all retries.
TEST(ConnectionManagerDeath, OfTheServerBeforeConnectingIsTold) {
  Pair pair;
  pair.go_to(Stage::kRouteResolved, Form::kIdsAlone, false);
  pair.server->die();
  const int64_t asked = now_ns();
  pair.client->call("connect 0");
  pair.client->expect("REJECTED 8 0");  // IB_CM_REJ_INVALID_SERVICE_ID: nobody listens there
  EXPECT_LT(now_ns() - asked, kOneSecond);
}

}  // namespace
}  // namespace verbena::crash
