// SPDX-License-Identifier: BSD-2-Clause
//
// Two connections over a simulated wire, which loses messages on demand, in simulated time.
#include <errno.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "adapter/clock.h"
#include "cm/connection_table.h"

namespace verbena::cm {
namespace {

int64_t present = 0;
int64_t fake_now() { return present; }

constexpr uint64_t kReqPeriod =
    2 * 256 + 4096;  // ms: two path life times of 2^16, and the response time of 2^20
constexpr uint64_t kRepPeriod = 4096;

// One process.
struct Side final : Wire, ArrivalHandler, ConnectionOwner {
  explicit Side(Peer peer) : me(peer) {}

  void send(const Peer&, const Message& message) override { out.push_back(message); }
  Arrival arrived(std::unique_ptr<Connection>& arriving, const Message&) override {
    ++requests;
    if (answer != Arrival::kTaken) return answer;
    connection = std::move(arriving);
    connection->set_owner(this);
    return answer;
  }
  void connection_event(CmEvent event, const Message* message) override {
    events.push_back(event);
    if (message != nullptr) last = *message;
  }
  CmEvent event() {
    if (events.empty()) return CmEvent::kNone;
    const CmEvent first = events.front();
    events.pop_front();
    return first;
  }

  Peer me;
  AlarmClock clock{fake_now};
  ConnectionTable table{*this, clock, *this, me.slot * 100 + 1};
  std::deque<Message> out;
  std::deque<CmEvent> events;
  Message last;
  Arrival answer = Arrival::kTaken;
  int requests = 0;
  std::unique_ptr<Connection> connection;  // destroyed first: it still sends its last message
};

struct Pair : ::testing::Test {
  Side a{{1, 1}}, b{{2, 1}};
  void SetUp() override { present = 0; }

  // Delivers everything that is on its way.
  void carry() {
    while (!a.out.empty() || !b.out.empty()) {
      if (!a.out.empty()) deliver(a, b);
      if (!b.out.empty()) deliver(b, a);
    }
  }
  static void deliver(Side& from, Side& to) {
    const Message message = from.out.front();
    from.out.pop_front();
    to.table.receive(from.me, message);
  }
  void pass(uint64_t milliseconds) {
    present += static_cast<int64_t>(milliseconds) * 1'000'000;
    a.clock.ring_due();
    b.clock.ring_due();
  }
  static void lose(Side& side) { side.out.clear(); }

  void send_req(uint32_t qp_number = 10) {
    a.connection = std::make_unique<Connection>(a.table, &a);
    ReqParameters p{};
    p.peer = b.me;
    p.qp_type = IBV_QPT_RC;
    p.qp_number = qp_number;
    p.psn = 77;
    p.responder_resources = 5;
    p.primary.mtu = IBV_MTU_1024;
    p.primary.packet_life_time = 16;
    p.primary.hop_limit = 64;
    p.ca_guid = 0x0102030405060708;
    ASSERT_EQ(a.connection->send_req(p), 0);
  }
  void send_rep() {
    RepParameters p{};
    p.qp_number = 20;
    p.psn = 88;
    p.initiator_depth = 5;
    ASSERT_EQ(b.connection->send_rep(p), 0);
  }
  void reach(CmState state_of_a) {
    send_req();
    if (state_of_a == CmState::kReqSent) return;
    carry();
    send_rep();
    carry();
    ASSERT_EQ(a.event(), CmEvent::kRepReceived);
    if (state_of_a == CmState::kRepReceived) return;
    ASSERT_EQ(a.connection->send_rtu(), 0);
    carry();
    ASSERT_EQ(b.event(), CmEvent::kRtuReceived);
    if (state_of_a == CmState::kEstablished) return;
    ASSERT_EQ(a.connection->send_dreq(), 0);
    if (state_of_a == CmState::kDreqSent) return;
    carry();
    ASSERT_EQ(b.event(), CmEvent::kDreqReceived);
    ASSERT_EQ(b.connection->send_drep(), 0);
    carry();
    ASSERT_EQ(a.event(), CmEvent::kDrepReceived);
  }
};

TEST_F(Pair, AgreeOnWhatAConnectionNeeds) {
  reach(CmState::kEstablished);
  EXPECT_EQ(a.connection->state(), CmState::kEstablished);
  EXPECT_EQ(b.connection->state(), CmState::kEstablished);
  EXPECT_EQ(a.connection->facts().remote_qpn, 20u);
  EXPECT_EQ(b.connection->facts().remote_qpn, 10u);
  EXPECT_EQ(a.connection->facts().sq_psn, b.connection->facts().rq_psn);
  EXPECT_EQ(b.connection->facts().sq_psn, a.connection->facts().rq_psn);
  EXPECT_EQ(b.connection->facts().initiator_depth, 5);
}

TEST_F(Pair, ARequestIsRepeatedFifteenTimesAndThenGivenUp) {
  send_req();
  for (int i = 0; i < 15; ++i) {
    lose(a);
    pass(kReqPeriod - 1);
    EXPECT_TRUE(a.out.empty());
    pass(1);
    EXPECT_EQ(a.out.size(), 1u) << i;
  }
  pass(kReqPeriod - 1);
  EXPECT_EQ(a.event(), CmEvent::kNone);
  pass(1);
  EXPECT_EQ(a.event(), CmEvent::kReqError);
  EXPECT_EQ(a.connection->state(), CmState::kIdle);
  EXPECT_EQ(a.clock.next(), kEndOfTime);
}

TEST_F(Pair, ARepeatedRequestIsNoNewOne) {
  send_req();
  carry();
  pass(kReqPeriod);
  carry();
  EXPECT_EQ(b.requests, 1);
}

TEST_F(Pair, ARequestWhoseAnswerIsDelayedIsNotRepeatedSoon) {
  send_req();
  carry();
  b.connection->delay();
  pass(kReqPeriod);
  carry();
  EXPECT_EQ(a.connection->state(), CmState::kMraReqReceived);
  pass(65536);  // 2^24 of the answerer, and then the path's own time
  EXPECT_TRUE(a.out.empty());
  pass(512);
  EXPECT_EQ(a.out.size(), 1u);
}

TEST_F(Pair, ALostResponseIsRepeated) {
  send_req();
  carry();
  send_rep();
  lose(b);
  pass(kRepPeriod);
  carry();
  EXPECT_EQ(a.event(), CmEvent::kRepReceived);
}

TEST_F(Pair, AResponseWithoutAnswerIsGivenUp) {
  send_req();
  carry();
  send_rep();
  for (int i = 0; i < 16; ++i) {
    lose(b);
    pass(kRepPeriod);
  }
  EXPECT_EQ(b.event(), CmEvent::kRepError);
}

TEST_F(Pair, ALostReadyToUseIsRepeated) {
  reach(CmState::kRepReceived);
  ASSERT_EQ(a.connection->send_rtu(), 0);
  lose(a);
  pass(kRepPeriod);
  carry();
  EXPECT_EQ(b.event(), CmEvent::kRtuReceived);
  EXPECT_EQ(a.event(), CmEvent::kNone);
}

TEST_F(Pair, TheFirstDataEstablishes) {
  reach(CmState::kRepReceived);
  EXPECT_EQ(b.connection->establish(), 0);
  EXPECT_EQ(b.connection->state(), CmState::kEstablished);
  EXPECT_EQ(b.connection->establish(), EISCONN);
  ASSERT_EQ(a.connection->send_rtu(), 0);
  carry();
  EXPECT_EQ(b.event(), CmEvent::kNone);
}

TEST_F(Pair, ADisconnectWithoutAnswerIsGivenUp) {
  reach(CmState::kDreqSent);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(a.event(), CmEvent::kNone);
    lose(a);
    pass(kReqPeriod);
  }
  EXPECT_EQ(a.event(), CmEvent::kDreqError);
  EXPECT_EQ(a.connection->state(), CmState::kTimewait);
}

TEST_F(Pair, ALostDisconnectReplyIsRepeated) {
  reach(CmState::kDreqSent);
  carry();
  ASSERT_EQ(b.connection->send_drep(), 0);
  lose(b);
  b.connection.reset();
  pass(kReqPeriod);
  carry();
  EXPECT_EQ(a.event(), CmEvent::kDrepReceived);
}

TEST_F(Pair, TimeWaitLastsAsLongAsThePathSays) {
  reach(CmState::kTimewait);
  EXPECT_EQ(a.connection->state(), CmState::kTimewait);
  pass(511);
  EXPECT_EQ(a.event(), CmEvent::kNone);
  pass(1);  // 4.096 us * 2^17
  EXPECT_EQ(a.event(), CmEvent::kTimewaitExit);
  EXPECT_EQ(a.connection->state(), CmState::kIdle);
}

TEST_F(Pair, BothMayDisconnectAtOnce) {
  reach(CmState::kEstablished);
  ASSERT_EQ(a.connection->send_dreq(), 0);
  ASSERT_EQ(b.connection->send_dreq(), 0);
  carry();
  EXPECT_EQ(a.event(), CmEvent::kDreqReceived);
  EXPECT_EQ(b.event(), CmEvent::kDreqReceived);
  EXPECT_EQ(a.connection->send_drep(), 0);
  carry();
  EXPECT_EQ(b.event(), CmEvent::kDrepReceived);
}

TEST_F(Pair, ARequestNobodyListensForIsRejected) {
  b.answer = Arrival::kNobodyListens;
  send_req();
  carry();
  EXPECT_EQ(a.event(), CmEvent::kRejReceived);
  EXPECT_EQ(a.last[Field::kReason], kRejectInvalidServiceId);
}

TEST_F(Pair, ARefusedRequestIsRejected) {
  b.answer = Arrival::kRefused;
  send_req();
  carry();
  EXPECT_EQ(a.event(), CmEvent::kRejReceived);
  EXPECT_EQ(a.last[Field::kReason], kRejectConsumer);
}

TEST_F(Pair, AForgottenRequestComesAgain) {
  send_req();
  carry();
  b.connection->forget();
  b.connection.reset();
  carry();
  EXPECT_EQ(a.event(), CmEvent::kNone);
  pass(kReqPeriod);
  carry();
  EXPECT_EQ(b.requests, 2);
}

TEST_F(Pair, AQueuePairThatIsInUseIsStale) {
  reach(CmState::kEstablished);
  auto first = std::move(a.connection);
  send_req();  // with the same queue pair: its process must have forgotten the first request
  carry();
  EXPECT_EQ(a.event(), CmEvent::kRejReceived);
  EXPECT_EQ(a.event(), CmEvent::kDreqReceived);  // of the first
}

TEST_F(Pair, AStaleRequestSaysWhy) {
  reach(CmState::kEstablished);
  const auto first = std::move(a.connection);
  send_req();
  deliver(a, b);
  deliver(b, a);
  EXPECT_EQ(a.last[Field::kReason], kRejectStaleConnection);
  EXPECT_EQ(a.connection->state(), CmState::kTimewait);
}

TEST_F(Pair, MessagesOfAStrangerAreIgnored) {
  reach(CmState::kRepReceived);
  ASSERT_EQ(a.connection->send_rtu(), 0);
  b.table.receive({3, 1}, a.out.front());
  EXPECT_EQ(b.event(), CmEvent::kNone);
  b.table.receive({1, 2}, a.out.front());  // the slot's next process
  EXPECT_EQ(b.event(), CmEvent::kNone);
}

TEST_F(Pair, ADisconnectForAnotherQueuePairIsIgnored) {
  reach(CmState::kDreqSent);
  a.out.front()[Field::kRemoteQpn] = 21;
  carry();
  EXPECT_EQ(b.event(), CmEvent::kNone);
}

TEST_F(Pair, ADisconnectForNobodyIsAnswered) {
  reach(CmState::kEstablished);
  b.connection.reset();
  lose(b);
  ASSERT_EQ(a.connection->send_dreq(), 0);
  carry();
  EXPECT_EQ(a.event(), CmEvent::kDrepReceived);
}

// ---- a peer that dies, or is destroyed, in each state ---------------------------------------------------

// What the other side hears: the event, and the reason of a rejection.
struct Heard {
  CmEvent event;
  uint64_t reason = 0;
};
constexpr Heard kRejected{CmEvent::kRejReceived, kRejectConsumer};
constexpr Heard kTimedOut{CmEvent::kRejReceived, kRejectTimeout};
constexpr Heard kAsked{CmEvent::kDreqReceived};
constexpr Heard kAnswered{CmEvent::kDrepReceived};
constexpr Heard kNothing{CmEvent::kNone};

struct Ending {
  const char* name;
  CmState a, b;            // where the two are
  Heard by_b, by_b_death;  // when A is destroyed, and when it dies
  Heard by_a, by_a_death;  // likewise for B
};

void PrintTo(const Ending& ending, std::ostream* out) { *out << ending.name; }

// cm_destroy_id sends a last message in each state. A side that was asked to disconnect, or that asked and
// was asked, has reported the end before (Id::connection_event): what comes later only ends the connection.
constexpr Ending kEndings[] = {
    {"Requested", CmState::kReqSent, CmState::kReqReceived, kTimedOut, kTimedOut, kRejected, kRejected},
    {"RequestDelayed", CmState::kMraReqReceived, CmState::kMraReqSent, kTimedOut, kTimedOut, kRejected,
     kRejected},
    {"Responded", CmState::kRepReceived, CmState::kRepSent, kRejected, kRejected, kRejected, kRejected},
    {"ResponseDelayed", CmState::kMraRepSent, CmState::kMraRepReceived, kRejected, kRejected, kRejected,
     kRejected},
    {"Established", CmState::kEstablished, CmState::kEstablished, kAsked, kAsked, kAsked, kAsked},
    {"Disconnecting", CmState::kDreqSent, CmState::kEstablished, kNothing, kAsked, kAsked, kAnswered},
    {"DisconnectHeard", CmState::kDreqSent, CmState::kDreqReceived, kNothing, kAnswered, kAnswered,
     kAnswered},
};

struct Endings : Pair, ::testing::WithParamInterface<Ending> {
  void SetUp() override {
    Pair::SetUp();
    const CmState to = GetParam().a, other = GetParam().b;
    if (to == CmState::kMraReqReceived) {
      reach(CmState::kReqSent);
      carry();
      b.connection->delay();
      pass(kReqPeriod);
      carry();
    } else if (to == CmState::kMraRepSent) {
      reach(CmState::kRepReceived);
      a.connection->delay();
      pass(kRepPeriod);
      carry();
    } else {
      reach(to);
      if (to == CmState::kReqSent || other == CmState::kDreqReceived) carry();
      if (other == CmState::kDreqReceived) {
        ASSERT_EQ(b.event(), CmEvent::kDreqReceived);
      }
    }
    ASSERT_EQ(a.connection->state(), to);
    ASSERT_EQ(b.connection->state(), other);
    lose(a);  // what is still on its way
  }
  static void expect(Side& side, const Heard& heard) {
    EXPECT_EQ(side.event(), heard.event);
    if (heard.reason != 0) {
      EXPECT_EQ(side.last[Field::kReason], heard.reason);
    }
    EXPECT_EQ(side.event(), CmEvent::kNone);
  }
};

TEST_P(Endings, AreHeardWhenTheActiveSideIsDestroyed) {
  a.connection.reset();
  carry();
  expect(b, GetParam().by_b);
}

TEST_P(Endings, AreHeardWhenTheActiveSideDies) {
  b.table.lose(a.me);
  expect(b, GetParam().by_b_death);
}

TEST_P(Endings, AreHeardWhenThePassiveSideIsDestroyed) {
  b.connection.reset();
  carry();
  expect(a, GetParam().by_a);
}

TEST_P(Endings, AreHeardWhenThePassiveSideDies) {
  a.table.lose(b.me);
  expect(a, GetParam().by_a_death);
}

// Nothing is freed: the process exits, and tells its peers before.
TEST_P(Endings, AreHeardWhenTheActiveSideExits) {
  a.table.notify_of_end();
  carry();
  expect(b, GetParam().by_b);
}

TEST_P(Endings, AreHeardWhenThePassiveSideExits) {
  b.table.notify_of_end();
  carry();
  expect(a, GetParam().by_a);
}

INSTANTIATE_TEST_SUITE_P(Each, Endings, ::testing::ValuesIn(kEndings),
                         [](const auto& entry) { return std::string(entry.param.name); });

TEST_F(Pair, AreForgottenCompletely) {
  reach(CmState::kEstablished);
  a.connection.reset();
  carry();
  b.connection.reset();
  carry();
  a.events.clear();
  b.events.clear();
  reach(CmState::kEstablished);  // with the same queue pairs
}

// ---- service ID resolution ------------------------------------------------------------------------------

struct Resolution : Pair {
  void send_request() {
    a.connection = std::make_unique<Connection>(a.table, &a);
    SidrReqParameters p{};
    p.peer = b.me;
    ASSERT_EQ(a.connection->send_sidr_req(p), 0);
  }
};

TEST_F(Resolution, TellsQueuePairAndKey) {
  send_request();
  carry();
  ASSERT_EQ(
      b.connection->send_sidr_rep({.status = kSidrSuccess, .qp_number = 5, .qkey = 6, .private_data = {}}),
      0);
  carry();
  EXPECT_EQ(a.event(), CmEvent::kSidrRepReceived);
  EXPECT_EQ(a.last[Field::kQpn], 5u);
  EXPECT_EQ(a.last[Field::kQkey], 6u);
}

TEST_F(Resolution, IsAnsweredOnce) {
  send_request();
  a.out.push_back(a.out.front());
  carry();
  EXPECT_EQ(b.requests, 1);
  EXPECT_EQ(
      b.connection->send_sidr_rep({.status = kSidrSuccess, .qp_number = 5, .qkey = 6, .private_data = {}}),
      0);
  EXPECT_EQ(
      b.connection->send_sidr_rep({.status = kSidrSuccess, .qp_number = 5, .qkey = 6, .private_data = {}}),
      EINVAL);
}

TEST_F(Resolution, WithoutAnswerIsGivenUp) {
  send_request();
  for (int i = 0; i < 16; ++i) {
    lose(a);
    pass(4096);
  }
  EXPECT_EQ(a.event(), CmEvent::kSidrReqError);
}

TEST_F(Resolution, ThatNobodyListensForIsUnsupported) {
  b.answer = Arrival::kNobodyListens;
  send_request();
  carry();
  EXPECT_EQ(a.event(), CmEvent::kSidrRepReceived);
  EXPECT_EQ(a.last[Field::kStatus], kSidrUnsupported);
}

TEST_F(Resolution, WhoseAnswererIsDestroyedIsRejected) {
  send_request();
  carry();
  b.connection.reset();
  carry();
  EXPECT_EQ(a.last[Field::kStatus], kSidrReject);
}

TEST_F(Resolution, WhoseAnswererDiesIsRejected) {
  send_request();
  carry();
  a.table.lose(b.me);
  EXPECT_EQ(a.event(), CmEvent::kSidrRepReceived);
  EXPECT_EQ(a.last[Field::kStatus], kSidrReject);
  EXPECT_EQ(a.connection->state(), CmState::kIdle);
  EXPECT_EQ(a.clock.next(), kEndOfTime);
}

// An answer is not answered: its sender does not learn that no process waits for it (cm.c:
// cm_sidr_rep_handler).
TEST_F(Resolution, WhoseAskerDiesIsAnsweredAllTheSame) {
  send_request();
  carry();
  b.table.lose(a.me);
  EXPECT_EQ(b.event(), CmEvent::kNone);
  EXPECT_EQ(
      b.connection->send_sidr_rep({.status = kSidrSuccess, .qp_number = 5, .qkey = 6, .private_data = {}}),
      0);
  EXPECT_EQ(b.connection->state(), CmState::kIdle);
}

}  // namespace
}  // namespace verbena::cm
