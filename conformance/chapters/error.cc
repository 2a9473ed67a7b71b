// SPDX-License-Identifier: BSD-2-Clause
//
// Errors, generated from a table: the requester's status, the responder's state, and the event that it
// raises.
#include <algorithm>
#include <string>
#include <vector>

#include "support/pair.h"

namespace conformance::error_chapter {
namespace {

struct Row {
  const char* key;
  ibv_wr_opcode opcode;
  int64_t at;           // offset of the remote address
  bool has_stale_rkey;  // the rkey of a region that is gone
  std::vector<ibv_wc_status> statuses;
  std::vector<ibv_wc_status> receive;  // what the receive completes with; empty: it is not consumed
  std::vector<ibv_event_type> events;  // at the responder; empty: no clause
};

constexpr int64_t buffer_size = 16384;
// Longer than what an adapter may keep in the completion, which the CPU places when it is polled.
constexpr uint32_t kMessage = 128;

const std::vector<Row>& rows() {
  const std::vector<ibv_wc_status> access = {IBV_WC_REM_ACCESS_ERR},
                                   invalid = {IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_ACCESS_ERR};
  const std::vector<ibv_event_type> access_events = {IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_FATAL,
                                                     IBV_EVENT_QP_REQ_ERR},
                                    any_event = {IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR,
                                                 IBV_EVENT_QP_FATAL};
  static const std::vector<Row> table = {
      {"write-rkey", IBV_WR_RDMA_WRITE, 1024, true, access, {}, access_events},
      {"read-rkey", IBV_WR_RDMA_READ, 1024, true, access, {}, access_events},
      {"atomic-rkey", IBV_WR_ATOMIC_FETCH_AND_ADD, 1024, true, access, {}, access_events},
      {"write-bounds", IBV_WR_RDMA_WRITE, buffer_size - 4, false, access, {}, access_events},
      {"misaligned", IBV_WR_ATOMIC_FETCH_AND_ADD, 1025, false, invalid, {}, any_event},
      {"no-right", IBV_WR_RDMA_WRITE, 1024, false, invalid, {}, any_event},
      {"too-long",
       IBV_WR_SEND,
       0,
       false,
       {IBV_WC_REM_INV_REQ_ERR},
       {IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_QP_OP_ERR},
       {}},
      {"receive-lkey",
       IBV_WR_SEND,
       0,
       false,
       {IBV_WC_REM_OP_ERR},
       {IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_QP_OP_ERR},
       {}}};
  return table;
}

template <typename Value>
bool contains(const std::vector<Value>& list, Value value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

class ErrorTest : public PairTest {
 public:
  ErrorTest(ibv_qp_type type, const Row& row) : type_(type), row_(row) {}

 protected:
  bool is(const char* key) const { return row_.key == std::string(key); }

  // Provokes the error once. Returns the requester's completion.
  Completion provoke(bool tests_responder = false) {
    if (is_atomic(row_.opcode) && device().attributes().atomic_cap == IBV_ATOMIC_NONE)
      throw NotClaimed{"atomic_cap is none"};
    PairSpec spec;
    spec.tests_far = tests_responder;
    spec.both.type = type_;
    spec.both.separate_cqs = true;
    spec.both.buffer = buffer_size;
    if (is("no-right")) spec.path.access = IBV_ACCESS_REMOTE_READ;
    pair(spec);
    if (is_atomic(row_.opcode) && !pair().has_atomics()) throw NotTested{"the far end has no atomics"};
    const wire::Region gone = far().register_region(1024, 256, all_remote_access & ~IBV_ACCESS_REMOTE_ATOMIC);
    if (gone.error != 0 || far().deregister_region(gone) != 0)
      throw Deviation{"a region is needed", Where::current()};
    std::vector<ReceiveRequest> receives;
    if (is("too-long")) receives.push_back({1, {{0, 16}}});
    if (is("receive-lkey")) receives.push_back({1, {{0, 256, gone.lkey}}});
    receives.push_back({50, {{4096, 256}}});
    if (far().receive(receives) != 0) throw NotTested{"the receive is refused when it is posted"};
    SendRequest request = remote_request(row_.opcode, {{0, row_.opcode == IBV_WR_SEND ? kMessage : 8u}},
                                         far().facts(), row_.at, 3);
    if (row_.has_stale_rkey) request.rkey = gone.rkey;
    if (near().post(request) != 0) {
      if (is("misaligned")) throw NotTested{"the request is refused when it is posted"};
      throw Deviation{"ibv_post_send; expected: 0", Where::current()};
    }
    const Completion done = near().completion();
    if (is("no-right") && type_ == IBV_QPT_RC && done.status == IBV_WC_SUCCESS)
      throw NotTested{"the responder takes the write: access.qp.write"};
    return done;
  }

  const ibv_qp_type type_;
  const Row& row_;
};

class StatusTest final : public ErrorTest {
  using ErrorTest::ErrorTest;
  void run() override {
    const Completion done = provoke();
    EXPECT_TRUE(contains(row_.statuses, done.status)) << completion_text(done);
    EXPECT_EQ(done.id, 3u);
    EXPECT_EQ(done.qpn, near().facts().qpn);
    EXPECT_EQ(near().state(IBV_QPS_ERR), IBV_QPS_ERR);
    EXPECT_TRUE(near().stays_empty());
    EXPECT_TRUE(far().untouched(16, 8192)) << "bytes of the far end have changed";
  }
};

class ResponderTest final : public ErrorTest {
  using ErrorTest::ErrorTest;
  void run() override {
    provoke(true);
    EXPECT_EQ(far().state(IBV_QPS_ERR), IBV_QPS_ERR);
    if (!row_.receive.empty()) {
      const Completion failed = far().received();
      EXPECT_EQ(failed.id, 1u);
      EXPECT_TRUE(contains(row_.receive, failed.status)) << completion_text(failed);
    }
    const Completion flushed = far().received();
    EXPECT_EQ(flushed.id, 50u);
    EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR) << completion_text(flushed);
    EXPECT_TRUE(far().stays_empty(true));
  }
};

class EventTest final : public ErrorTest {
  using ErrorTest::ErrorTest;
  void run() override {
    provoke(true);
    const wire::Event event = far().async_event();
    ASSERT_TRUE(event.there) << "expected: an event of the QP; seen: none";
    EXPECT_TRUE(contains(row_.events, event.type)) << "seen: " << ibv_event_type_str(event.type);
  }
};

template <typename Test>
void add(const std::string& clause, ibv_qp_type type, const Row& row) {
  register_generated("error", test_name(clause), {"error." + clause}, Traits(), __FILE__, __LINE__,
                     [type, &row]() -> testing::Test* { return new Test(type, row); });
}

[[maybe_unused]] const bool generated = [] {
  for (const Row& row : rows()) {
    const std::string key = row.key;
    add<StatusTest>("rc." + key + ".status", IBV_QPT_RC, row);
    add<ResponderTest>("rc." + key + ".responder", IBV_QPT_RC, row);
    if (!row.events.empty()) add<EventTest>("rc." + key + ".event", IBV_QPT_RC, row);
    add<StatusTest>("xrc." + key + ".status", IBV_QPT_XRC_SEND, row);
  }
  return true;
}();

class Fixture : public PairTest {
 protected:
  uint32_t stale_lkey(Endpoint& end) {
    const wire::Region gone = end.register_region(1024, 256, IBV_ACCESS_LOCAL_WRITE);
    if (gone.error != 0 || end.deregister_region(gone) != 0)
      throw Deviation{"a region is needed", Where::current()};
    return gone.lkey;
  }
  // A request with a wrong lkey; NotTested where it is refused when it is posted.
  Completion fail_locally(uint64_t id = 7) {
    if (near().post(send_request({{1024, 8, stale_lkey(near())}}, id)) != 0)
      throw NotTested{"the request is refused when it is posted"};
    return near().completion();
  }
  // A message longer than its receive.
  void too_long_is_dropped(ibv_qp_type type) {
    PairSpec spec;
    spec.tests_far = true;
    spec.both.type = type;
    new_pair(spec);
    const uint32_t room = far().data_offset() + 16;
    ASSERT_EQ(far().receive(64, room, 5), 0);
    ASSERT_EQ(near().post(send_request({{0, kMessage}})), 0);
    EXPECT_EQ(near().completion().status, IBV_WC_SUCCESS);
    EXPECT_TRUE(far().stays_empty(true));
    EXPECT_TRUE(far().untouched(64 + room, 256));
    EXPECT_EQ(far().state(), IBV_QPS_RTS);
    near().fill(0, 8, 0x11);
    ASSERT_EQ(near().post(send_request({{0, 8}})), 0);
    EXPECT_EQ(near().completion().status, IBV_WC_SUCCESS);
    const Completion received = far().received();
    EXPECT_EQ(received.id, 5u);
    EXPECT_EQ(received.status, IBV_WC_SUCCESS);
    EXPECT_TRUE(far().has(64 + far().data_offset(), 8, 0x11));
  }
};

CONFORMANCE_TEST(error, LocalProtection, "error.local.lkey", "error.local.wr-id", "error.local.once") {
  const Completion done = fail_locally();
  {
    const About about("error.local.lkey");
    EXPECT_EQ(done.status, IBV_WC_LOC_PROT_ERR) << completion_text(done);
    EXPECT_EQ(near().state(IBV_QPS_ERR), IBV_QPS_ERR);
    EXPECT_EQ(far().state(), IBV_QPS_RTS);
  }
  {
    const About about("error.local.wr-id");
    EXPECT_EQ(done.id, 7u);
    EXPECT_EQ(done.qpn, near().facts().qpn);
  }
  const About about("error.local.once");
  EXPECT_TRUE(near().stays_empty());
}

CONFORMANCE_TEST(error, UnreliableRequester, "error.unreliable.requester") {
  bool is_claimed = false;
  for (const ibv_qp_type type : {IBV_QPT_UC, IBV_QPT_UD}) {
    PairSpec spec;
    spec.both.type = type;
    try {
      new_pair(spec);
    } catch (const NotClaimed&) {
      continue;  // the other type shows it
    }
    is_claimed = true;
    const Completion done = fail_locally();
    EXPECT_EQ(done.status, IBV_WC_LOC_PROT_ERR) << type_name(type) << ": " << completion_text(done);
    EXPECT_EQ(done.id, 7u);
  }
  if (!is_claimed) throw NotClaimed{"QPs of types UC and UD are refused"};
}

CONFORMANCE_TEST(error, ConnectedAgain, "error.recovers") {
  fail_locally();
  // The end that has not failed: the clause is about RESET from ERR.
  ASSERT_EQ(far().to_state(IBV_QPS_ERR), 0);
  for (int round = 0; round < 3; ++round) {
    for (Endpoint* end : {&near(), &far()}) ASSERT_EQ(end->to_state(IBV_QPS_RESET), 0);
    pair().connect();
    ASSERT_EQ(far().receive(0, 64, 5), 0);
    ASSERT_EQ(near().post(send_request({{0, 8}})), 0);
    EXPECT_EQ(near().completion().status, IBV_WC_SUCCESS);
    EXPECT_EQ(far().received().id, 5u);
    for (Endpoint* end : {&near(), &far()}) ASSERT_EQ(end->to_state(IBV_QPS_ERR), 0);
  }
}

CONFORMANCE_TEST(error, OthersAreUnaffected, "error.others-unaffected") {
  wire::MakeEnd beside_near, beside_far;
  beside_near.shares = near().facts().end;
  beside_far.shares = far().facts().end;
  beside_near.shares_cqs = beside_far.shares_cqs = true;
  Endpoint near_too(topology().near(), beside_near), far_too(topology().far(), beside_far);
  ASSERT_EQ(near_too.connect(far_too.facts()), 0);
  ASSERT_EQ(far_too.connect(near_too.facts()), 0);
  ASSERT_EQ(near().post(remote_request(IBV_WR_RDMA_WRITE, {{0, 8}}, far().facts(), -4096)), 0);
  EXPECT_EQ(near().completion().status, IBV_WC_REM_ACCESS_ERR);
  ASSERT_EQ(far_too.receive(0, 64, 5), 0);
  ASSERT_EQ(near_too.post(send_request({{0, 8}}, 6)), 0);
  const Completion sent = near_too.completion(), received = far_too.received();
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS) << completion_text(sent);
  EXPECT_EQ(sent.qpn, near_too.facts().qpn);
  EXPECT_EQ(received.status, IBV_WC_SUCCESS) << completion_text(received);
  EXPECT_EQ(received.qpn, far_too.facts().qpn);
}

CONFORMANCE_TEST(error, UcTooLong, "error.uc.too-long") { too_long_is_dropped(IBV_QPT_UC); }
CONFORMANCE_TEST(error, UdTooLong, "error.ud.too-long") { too_long_is_dropped(IBV_QPT_UD); }

CONFORMANCE_TEST(error, OtherPartition, "error.pkey.rc", "error.pkey.ud") {
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UD}) {
    PairSpec spec;
    spec.tests_far = true;
    spec.both.type = type;
    spec.is_connected = false;
    new_pair(spec);
    wire::Connect here, there;
    here.timeout = 12, here.retry_count = 1;
    bool is_found = false;
    for (uint16_t i = 0; i < near().facts().pkeys.size() && !is_found; ++i)
      for (uint16_t j = 0; j < far().facts().pkeys.size() && !is_found; ++j) {
        const unsigned one = near().facts().pkeys[i] & 0x7fffu, other = far().facts().pkeys[j] & 0x7fffu;
        is_found = one != 0 && other != 0 && one != other;
        here.pkey_index = i, there.pkey_index = j;
      }
    if (!is_found) throw NotClaimed{"the ports have the same P_Key only"};
    const About about(type == IBV_QPT_RC ? ClauseId("error.pkey.rc") : ClauseId("error.pkey.ud"));
    ASSERT_EQ(near().connect(far().facts(), here), 0);
    ASSERT_EQ(far().connect(near().facts(), there), 0);
    ASSERT_EQ(far().receive(0, 256), 0);
    ASSERT_EQ(near().post(send_request({{0, 8}})), 0);
    EXPECT_EQ(near().completion().status, type == IBV_QPT_RC ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS);
    EXPECT_TRUE(far().stays_empty(true));
    EXPECT_TRUE(far().untouched(0, 4096));
  }
}

}  // namespace
}  // namespace conformance::error_chapter
