// SPDX-License-Identifier: BSD-2-Clause
//
// A process with ids of the connection manager is killed at every stage of a connection's life, at either
// end. Its peer is told within a second, others go on, and its ids, ports and groups are gone.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <tuple>

#include "cm/id_table.h"
#include "driver.h"
#include "fabric/node.h"

namespace verbena::crash {
namespace {

constexpr int kAnswerMilliseconds = 20'000;
constexpr int64_t kOneSecond = 1'000'000'000;

// tests/crash/cm_role.cc, as the driver holds it.
class CmRole {
 public:
  CmRole() {
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) throw Failure("no pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    std::string program = VERBENA_CRASH_CM_ROLE;
    char* arguments[] = {program.data(), nullptr};
    const int error = posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    to_ = in[1];
    from_ = out[0];
    if (error != 0) throw Failure("cannot start " + program);
    answer("start");
  }
  CmRole(const CmRole&) = delete;
  CmRole& operator=(const CmRole&) = delete;
  ~CmRole() {
    die();
    close(to_);
    close(from_);
  }

  pid_t pid() const { return pid_; }

  // One command; its answer without the "ok ".
  std::string call(const std::string& command) {
    const std::string line = command + "\n";
    if (write(to_, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
      throw Failure("it is gone");
    return answer(command);
  }

  // The next event, "NAME STATUS ID [NEW ID]"; "" when none comes in time.
  std::string event(int milliseconds) {
    while (events_.empty()) {
      const std::string line = read_line(milliseconds);
      if (line.empty()) return "";
      if (line.rfind("event ", 0) != 0) throw Failure("an answer that nobody has asked for: " + line);
      events_.push_back(line.substr(6));
    }
    std::string first = events_.front();
    events_.pop_front();
    return first;
  }
  void expect(const std::string& event_begins) {
    const std::string got = event(kAnswerMilliseconds);
    require(got.rfind(event_begins, 0) == 0, "event \"" + got + "\", not \"" + event_begins + "\"");
  }

  void die() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  std::string answer(const std::string& to) {
    for (;;) {
      const std::string line = read_line(kAnswerMilliseconds);
      if (line.rfind("event ", 0) == 0) {
        events_.push_back(line.substr(6));
        continue;
      }
      require(line.rfind("ok", 0) == 0, "\"" + line + "\" to \"" + to + "\"");
      return line.size() > 3 ? line.substr(3) : "";
    }
  }
  std::string read_line(int milliseconds) {
    size_t end;
    while ((end = pending_.find('\n')) == std::string::npos) {
      pollfd readable{from_, POLLIN, 0};
      char more[256];
      if (poll(&readable, 1, milliseconds) != 1) return "";
      const ssize_t got = read(from_, more, sizeof more);
      if (got <= 0) return "";
      pending_.append(more, static_cast<size_t>(got));
    }
    std::string line = pending_.substr(0, end);
    pending_.erase(0, end + 1);
    return line;
  }

  pid_t pid_ = -1;
  int to_ = -1, from_ = -1;
  std::string pending_;
  std::deque<std::string> events_;
};

enum class Stage {
  kCreated,
  kBound,
  kListening,
  kAddressResolved,
  kRouteResolved,
  kRequested,  // the server has not answered
  kResponded,  // the client has not confirmed
  kEstablished,
  kDisconnecting,  // the victim has said so, the other not yet
};
constexpr const char* kStageNames[] = {"Created",         "Bound",         "Listening",
                                       "AddressResolved", "RouteResolved", "Requested",
                                       "Responded",       "Established",   "Disconnecting"};

// A server and a client, on the way to a connection. The server's ids: 0 listens, 1 is the connection's.
struct Pair {
  std::unique_ptr<CmRole> server = std::make_unique<CmRole>();
  std::unique_ptr<CmRole> client = std::make_unique<CmRole>();
  std::string port;

  void go_to(Stage stage, bool victim_is_client) {
    const auto reached = [&](Stage step) { return stage >= step; };
    server->call("id tcp");
    client->call("id tcp");
    if (reached(Stage::kBound)) port = server->call("bind 0 0");
    if (reached(Stage::kListening)) server->call("listen 0");
    if (reached(Stage::kAddressResolved)) resolve(*client);
    if (reached(Stage::kRouteResolved)) route(*client);
    if (reached(Stage::kRequested)) client->call("connect 0");
    if (reached(Stage::kRequested)) server->expect("CONNECT_REQUEST 0 0 1");
    if (reached(Stage::kResponded)) server->call("accept 1");
    if (reached(Stage::kResponded)) client->expect("CONNECT_RESPONSE 0 0");
    if (reached(Stage::kEstablished)) client->call("establish 0");
    if (reached(Stage::kEstablished)) server->expect("ESTABLISHED 0 1");
    if (reached(Stage::kDisconnecting)) {
      victim_is_client ? client->call("disconnect 0") : server->call("disconnect 1");
      victim_is_client ? server->expect("DISCONNECTED 0 1") : client->expect("DISCONNECTED 0 0");
    }
  }
  void resolve(CmRole& role) const {
    role.call("resolve 0 " + port);
    role.expect("ADDR_RESOLVED 0 0");
  }
  static void route(CmRole& role) {
    role.call("route 0");
    role.expect("ROUTE_RESOLVED 0 0");
  }
};

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

class ConnectionManager : public testing::TestWithParam<std::tuple<Stage, bool>> {
 protected:
  static Stage stage() { return std::get<0>(GetParam()); }
  static bool hits_client() { return std::get<1>(GetParam()); }

  // What the survivor is told, one of these; empty: nothing. Of a request that it has not answered a server
  // hears no more: accepting it will fail (Linux, ucma.c: ucma_event_handler, "ignore events for new
  // connections").
  static std::set<std::string> news() {
    if (stage() == Stage::kRequested && hits_client()) return {};
    if (stage() == Stage::kEstablished) return {"DISCONNECTED"};
    if (stage() == Stage::kRequested || stage() == Stage::kResponded)
      return {"REJECTED", "UNREACHABLE", "CONNECT_ERROR", "DISCONNECTED"};
    return {};
  }
};

TEST_P(ConnectionManager, TheSurvivorIsToldWithinASecondAndNothingIsLeft) {
  Pair beside;
  beside.go_to(Stage::kEstablished, false);
  Pair pair;
  pair.go_to(stage(), hits_client());
  std::unique_ptr<CmRole>& victim = hits_client() ? pair.client : pair.server;
  CmRole& survivor = hits_client() ? *pair.server : *pair.client;
  const pid_t dead = victim->pid();

  victim->die();
  const int64_t died = now_ns();
  if (const auto expected = news(); !expected.empty()) {
    const std::string got = survivor.event(kAnswerMilliseconds);
    EXPECT_LT(now_ns() - died, kOneSecond);
    EXPECT_EQ(expected.count(got.substr(0, got.find(' '))), 1u) << "event \"" << got << "\"";
  }
  const Holders after;
  EXPECT_EQ(after.ids.count(dead), 0u);
  EXPECT_GE(after.ids.count(survivor.pid()), 1u);

  // Others go on: a pair that was connected still is, and a new one takes the dead one's place.
  EXPECT_EQ(beside.server->event(0), "");
  EXPECT_EQ(beside.client->event(0), "");
  victim = std::make_unique<CmRole>();
  victim->call("id tcp");
  if (stage() < Stage::kBound) return;
  if (!hits_client()) {
    EXPECT_EQ(victim->call("bind 0 " + pair.port), pair.port);
    victim->call("listen 0");
  } else if (stage() < Stage::kListening) {
    survivor.call("listen 0");
  }
  CmRole newcomer;
  newcomer.call("id tcp");
  pair.resolve(newcomer);
  Pair::route(newcomer);
  newcomer.call("connect 0");
  CmRole& server = hits_client() ? survivor : *victim;
  std::string request;
  for (int i = 0; i < 4 && request.rfind("CONNECT_REQUEST", 0) != 0; ++i)
    request = server.event(kAnswerMilliseconds);
  ASSERT_EQ(request.rfind("CONNECT_REQUEST 0 0 ", 0), 0u) << request;
  server.call("accept " + request.substr(request.rfind(' ') + 1));
  newcomer.expect("CONNECT_RESPONSE 0 0");
}

std::string name_of_case(const testing::TestParamInfo<std::tuple<Stage, bool>>& parameters) {
  return std::string(std::get<1>(parameters.param) ? "Client" : "Server") +
         kStageNames[static_cast<int>(std::get<0>(parameters.param))];
}

INSTANTIATE_TEST_SUITE_P(Killed, ConnectionManager,
                         testing::Combine(testing::Values(Stage::kCreated, Stage::kBound, Stage::kListening,
                                                          Stage::kAddressResolved, Stage::kRouteResolved,
                                                          Stage::kRequested, Stage::kResponded,
                                                          Stage::kEstablished, Stage::kDisconnecting),
                                          testing::Bool()),
                         name_of_case);

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

// Who connects to a server that died meanwhile is told so at once, not after all retries.
TEST(ConnectionManagerDeath, OfTheServerBeforeConnectingIsTold) {
  Pair pair;
  pair.go_to(Stage::kRouteResolved, false);
  pair.server->die();
  const int64_t asked = now_ns();
  pair.client->call("connect 0");
  pair.client->expect("REJECTED 8 0");  // IB_CM_REJ_INVALID_SERVICE_ID: nobody listens there
  EXPECT_LT(now_ns() - asked, kOneSecond);
}

}  // namespace
}  // namespace verbena::crash
