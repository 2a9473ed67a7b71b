// SPDX-License-Identifier: BSD-2-Clause
//
// The table of docs/ERRORS.md, "Effects of each error": each class of error on each transport, and its effect
// on both sides. Sources:
// - InfiniBand Architecture Specification vol. 1, 9.9.2 (requester), 9.9.3 (responder), 10.10.2 (completions),
//   11.6.2 and 11.6.3 (status, events);
// - ibv_poll_cq(3), ibv_get_async_event(3);
// - where the specification leaves a choice: drivers/infiniband/sw/rxe, check_*() and do_class_*() in
//   rxe_comp.c and rxe_resp.c.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "unit/engine/error_faults.h"

namespace verbena {
namespace {

enum class Fate : uint8_t {
  kStays,  // in RTS
  kFails,  // ERR; an unreliable requester SQE
  kError,  // ERR
  kReset,  // the state that the test has set
};

struct Expected {
  VendorError completion = VendorError::none;  // the requester's
  Fate requester = Fate::kStays;
  Fate responder = Fate::kStays;
  std::optional<VendorError> receive = {};  // the responder's completion, if there is one
  int event = 0;                            // and its event
};

struct Row {
  const char* name;
  uint32_t transports;
  void (*provoke)(ErrorScene&);
  Expected expected;
};

constexpr uint32_t bit(TransportType transport) { return 1u << static_cast<uint32_t>(transport); }
constexpr uint32_t kUc = bit(TransportType::kUc), kUd = bit(TransportType::kUd), kXrc = bit(TransportType::kXrc);
constexpr uint32_t kAcknowledged = bit(TransportType::kRc) | kXrc;
constexpr uint32_t kConnected = kAcknowledged | kUc;
constexpr uint32_t kUnacknowledged = kUc | kUd;
constexpr uint32_t kAll = kConnected | kUd;

// ---- the table ----

using V = VendorError;
constexpr Expected local(V error) { return {error, Fate::kFails}; }
// The responder refuses a request that has taken no receive request.
constexpr Expected refused(V error, int event) { return {error, Fate::kFails, Fate::kError, {}, event}; }
// The failure at the responder consumed a receive request.
constexpr Expected spent(V error, V receive) { return {error, Fate::kFails, Fate::kError, receive}; }
constexpr Expected kDropped{};

const Row kRows[] = {
    // ---- found by the requester, before anything leaves ----
    {"LengthAboveThePorts", kConnected, [](ErrorScene& s) { go(s, IBV_WR_RDMA_WRITE, 8193); },
     local(V::message_too_long)},
    {"LengthAboveTheMtu", kUd, [](ErrorScene& s) { go(s, IBV_WR_SEND, 1025); }, local(V::message_too_long)},
    {"AtomicOfFourBytes", kAcknowledged, [](ErrorScene& s) { go(s, IBV_WR_ATOMIC_FETCH_AND_ADD, 4); },
     local(V::atomic_not_8_bytes)},
    {"ReadWithoutResources", kAcknowledged,
     [](ErrorScene& s) {
       s.begin_again({.max_rd_atomic = 0});
       go(s, IBV_WR_RDMA_READ, 8);
     },
     local(V::too_many_outstanding_reads)},
    {"NoAddressHandle", kUd,
     [](ErrorScene& s) {
       ibv_send_wr wr = s.request(IBV_WR_SEND, {s.local.sge(0, 8)});
       wr.wr.ud.ah = nullptr;
       go(s, wr);
     },
     local(V::malformed_request)},
    {"AddressHandleOfAnotherPd", kUd,
     [](ErrorScene& s) {
       Address other(s.other_pd.get(), address_of(s.gid()));
       ibv_send_wr wr = s.request(IBV_WR_SEND, {s.local.sge(0, 8)});
       wr.wr.ud.ah = other.ah();
       go(s, wr);
     },
     local(V::address_handle_other_pd)},
    {"LkeyUnknown", kAll, [](ErrorScene& s) { send_with_key(s, s.local.lkey() ^ 0xff00); },
     local(V::lkey_unknown)},
    {"LkeyUnknownAndNobodyThere", kConnected,
     [](ErrorScene& s) {
       s.begin_again({.peer = 0xfffff0});
       send_with_key(s, s.local.lkey() ^ 0xff00);
     },
     local(V::lkey_unknown)},
    {"LkeyOfAnotherPd", kAll,
     [](ErrorScene& s) {
       Region other(s.other_pd.get(), 64);
       go(s, s.request(IBV_WR_SEND, {other.sge(0, 8)}));
     },
     local(V::lkey_other_pd)},
    {"LkeyOutOfRange", kAll,
     [](ErrorScene& s) { go(s, s.request(IBV_WR_SEND, {s.local.sge(s.local.size() - 4, 8)})); },
     local(V::lkey_out_of_range)},
    {"AnswerIntoMemoryThatIsOnlyRead", kAcknowledged,
     [](ErrorScene& s) {
       Region constant(s.pd.get(), 64, 0);
       go(s, s.request(IBV_WR_RDMA_READ, {constant.sge(0, 8)}));
     },
     local(V::lkey_no_local_write)},
    {"LocalMemoryGone", kConnected,
     [](ErrorScene& s) {
       Unmapped gone(s.pd.get());
       s.post_receive({s.remote.sge(0, 4096)});
       go(s, s.request(IBV_WR_RDMA_WRITE, {gone.sge()}));
     },
     local(V::local_memory_gone)},
    {"BindOfARegionThatDoesNotAllowIt", kConnected,
     [](ErrorScene& s) {
       Window window(s);
       ibv_mr region{};
       region.lkey = s.remote.lkey();
       bind_window(s, &region, window.mw);
     },
     local(V::bind_refused)},
    {"InvalidationOfNoWindow", kConnected,
     [](ErrorScene& s) {
       ibv_send_wr wr = s.request(IBV_WR_LOCAL_INV, {});
       wr.invalidate_rkey = 0x77777777;
       go(s, wr);
     },
     local(V::bind_refused)},

    // ---- refused by the responder: invalid requests ----
    {"ReceiveTooSmall", kAcknowledged,
     [](ErrorScene& s) {
       s.post_receive({s.remote.sge(0, 16)});
       go(s, IBV_WR_SEND, 17);
     },
     spent(V::remote_receive_too_small, V::receive_too_small)},
    {"ReceiveTooSmall", kUnacknowledged,
     [](ErrorScene& s) {
       s.post_receive({s.remote.sge(0, 16)});
       go(s, IBV_WR_SEND, 100);
     },
     kDropped},
    {"AtomicMisaligned", kAcknowledged,
     [](ErrorScene& s) { go_to(s, IBV_WR_ATOMIC_FETCH_AND_ADD, s.remote.address(4), s.remote.rkey()); },
     refused(V::remote_atomic_misaligned, IBV_EVENT_QP_REQ_ERR)},
    {"ReadWithoutResourcesThere", kAcknowledged,
     [](ErrorScene& s) {
       s.begin_again({.max_dest_rd_atomic = 0});
       go(s, IBV_WR_RDMA_READ, 8);
     },
     refused(V::remote_no_read_resources, IBV_EVENT_QP_REQ_ERR)},
    {"WriteThatTheQpDoesNotAllow", kAcknowledged,
     [](ErrorScene& s) {
       s.begin_again({.access = 0});
       go(s, IBV_WR_RDMA_WRITE, 8);
     },
     refused(V::remote_qp_no_right, IBV_EVENT_QP_REQ_ERR)},
    {"WriteThatTheQpDoesNotAllow", kUc,
     [](ErrorScene& s) {
       s.begin_again({.access = 0});
       go(s, IBV_WR_RDMA_WRITE, 8);
     },
     kDropped},
    {"SrqUnknown", kXrc,
     [](ErrorScene& s) {
       ibv_send_wr wr = s.request(IBV_WR_SEND, {s.local.sge(0, 8)});
       wr.qp_type.xrc.remote_srqn = qp_number(s.requester());
       go(s, wr);
     },
     refused(V::remote_srq_unknown, IBV_EVENT_QP_REQ_ERR)},

    // Connected queue pairs are of the same type: only damage makes them differ.
    {"OperationThatTheKindDoesNotTake", kAcknowledged,
     [](ErrorScene& s) {
       s.post_receive({s.remote.sge(0, 8)});
       go(s, IBV_WR_SEND, 8);  // by which the path is accepted
       ASSERT_EQ(completion(s.send_cq.get()).status, IBV_WC_SUCCESS);
       ASSERT_EQ(completion(s.recv_cq.get()).status, IBV_WC_SUCCESS);
       s.responder()->shared->type = IBV_QPT_UD;
       go(s, IBV_WR_RDMA_READ, 8);
     },
     refused(V::remote_opcode_refused, IBV_EVENT_QP_REQ_ERR)},

    // ---- remote access ----
    {"RkeyUnknownToWrite", kAcknowledged,
     [](ErrorScene& s) { go_to(s, IBV_WR_RDMA_WRITE, s.remote.address(), s.remote.rkey() ^ 0x80); },
     refused(V::rkey_unknown, IBV_EVENT_QP_ACCESS_ERR)},
    {"RkeyUnknownToRead", kAcknowledged,
     [](ErrorScene& s) { go_to(s, IBV_WR_RDMA_READ, s.remote.address(), s.remote.rkey() ^ 0x80); },
     refused(V::rkey_unknown, IBV_EVENT_QP_ACCESS_ERR)},
    {"RkeyUnknownToAnAtomic", kAcknowledged,
     [](ErrorScene& s) { go_to(s, IBV_WR_ATOMIC_FETCH_AND_ADD, s.remote.address(), s.remote.rkey() ^ 0x80); },
     refused(V::rkey_unknown, IBV_EVENT_QP_ACCESS_ERR)},
    {"RkeyUnknown", kUc,
     [](ErrorScene& s) { go_to(s, IBV_WR_RDMA_WRITE, s.remote.address(), s.remote.rkey() ^ 0x80); },
     kDropped},
    {"RkeyOfAnotherPd", kAcknowledged,
     [](ErrorScene& s) {
       Region other(s.other_pd.get(), 64);
       go_to(s, IBV_WR_RDMA_WRITE, other.address(), other.rkey());
     },
     refused(V::rkey_other_pd, IBV_EVENT_QP_ACCESS_ERR)},
    {"RkeyOfAnotherPd", kUc,
     [](ErrorScene& s) {
       Region other(s.other_pd.get(), 64);
       go_to(s, IBV_WR_RDMA_WRITE, other.address(), other.rkey());
     },
     kDropped},
    {"RkeyOutOfRange", kUc,
     [](ErrorScene& s) {
       go_to(s, IBV_WR_RDMA_WRITE, s.remote.address(s.remote.size() - 4), s.remote.rkey());
     },
     kDropped},
    {"RkeyWithoutTheRight", kUc,
     [](ErrorScene& s) {
       Region constant(s.pd.get(), 64, IBV_ACCESS_REMOTE_READ);
       go_to(s, IBV_WR_RDMA_WRITE, constant.address(), constant.rkey());
     },
     kDropped},
    {"RkeyOutOfRange", kAcknowledged,
     [](ErrorScene& s) {
       go_to(s, IBV_WR_RDMA_WRITE, s.remote.address(s.remote.size() - 4), s.remote.rkey());
     },
     refused(V::rkey_out_of_range, IBV_EVENT_QP_ACCESS_ERR)},
    {"RkeyWithoutTheRight", kAcknowledged,
     [](ErrorScene& s) {
       Region constant(s.pd.get(), 64, IBV_ACCESS_REMOTE_READ);
       go_to(s, IBV_WR_RDMA_WRITE, constant.address(), constant.rkey());
     },
     refused(V::rkey_no_right, IBV_EVENT_QP_ACCESS_ERR)},
    {"RemoteMemoryGone", kAcknowledged,
     [](ErrorScene& s) {
       Unmapped gone(s.pd.get());
       ibv_send_wr wr = s.request(IBV_WR_RDMA_WRITE, {s.local.sge(0, 4096)});
       wr.wr.rdma = {gone.address(), gone.rkey()};
       go(s, wr);
     },
     refused(V::remote_memory_gone, IBV_EVENT_QP_ACCESS_ERR)},
    {"WindowOfAnotherQp", bit(TransportType::kRc),
     [](ErrorScene& s) {
       Mr* allows = nullptr;
       ASSERT_EQ(reg_mr(s.pd.get(), s.remote.data(), s.remote.size(), s.remote.address(),
                        kAllAccess | IBV_ACCESS_MW_BIND, &allows),
                 0);
       const Owned<Mr> owned(allows);
       Window window(s);
       ibv_mr region{};
       region.lkey = mr_lkey(allows);
       const uint32_t rkey = bind_window(s, &region, window.mw);
       ASSERT_EQ(completion(s.send_cq.get()).status, IBV_WC_SUCCESS);
       go_to(s, IBV_WR_RDMA_WRITE, s.remote.address(), rkey);
     },
     refused(V::rkey_other_qp, IBV_EVENT_QP_ACCESS_ERR)},
    {"RkeyUnknownToAWriteThatTookAReceive", kAcknowledged,
     [](ErrorScene& s) {
       s.post_receive({});
       go_to(s, IBV_WR_RDMA_WRITE_WITH_IMM, s.remote.address(), s.remote.rkey() ^ 0x80);
     },
     spent(V::rkey_unknown, V::local_access)},
    {"RkeyUnknownToAWriteWithImmediate", kUc,
     [](ErrorScene& s) {
       s.post_receive({});
       go_to(s, IBV_WR_RDMA_WRITE_WITH_IMM, s.remote.address(), s.remote.rkey() ^ 0x80);
     },
     kDropped},

    // ---- remote operation: the responder's own fault ----
    {"ReceiveWithAnUnknownKey", kAcknowledged,
     [](ErrorScene& s) {
       s.post_receive({{s.remote.address(), 64, s.remote.lkey() ^ 0xff00}});
       go(s, IBV_WR_SEND, 8);
     },
     spent(V::remote_operation_failed, V::lkey_unknown)},
    {"ReceiveWithAnUnknownKey",
     kUnacknowledged,
     [](ErrorScene& s) {
       s.post_receive({{s.remote.address(), 64, s.remote.lkey() ^ 0xff00}});
       go(s, IBV_WR_SEND, 8);
     },
     {V::none, Fate::kStays, Fate::kError, V::lkey_unknown}},
    {"ReceiveIntoMemoryThatIsGone", kAcknowledged,
     [](ErrorScene& s) {
       Unmapped gone(s.pd.get());
       s.post_receive({gone.sge()});
       go(s, IBV_WR_SEND, 4096);
     },
     spent(V::remote_operation_failed, V::local_memory_gone)},

    // ---- receiver not ready ----
    {"NoReceive",
     kAcknowledged,
     [](ErrorScene& s) {
       s.begin_again(kImpatient);
       go(s, IBV_WR_SEND, 8);
     },
     {V::no_receive_posted, Fate::kFails}},
    {"NoReceive", kUnacknowledged, [](ErrorScene& s) { go(s, IBV_WR_SEND, 8); }, kDropped},

    // ---- transport: no answer ----
    {"ResponderInReset",
     kAcknowledged,
     [](ErrorScene& s) {
       s.begin_again(kImpatient);
       ASSERT_EQ(to_state(s.responder(), IBV_QPS_RESET), 0);
       go(s, IBV_WR_SEND, 8);
     },
     {V::peer_not_ready, Fate::kFails, Fate::kReset}},
    {"ResponderInReset",
     kUnacknowledged,
     [](ErrorScene& s) {
       ASSERT_EQ(to_state(s.responder(), IBV_QPS_RESET), 0);
       go(s, IBV_WR_SEND, 8);
     },
     {V::none, Fate::kStays, Fate::kReset}},
    {"NobodyThere",
     kAcknowledged,
     [](ErrorScene& s) {
       s.begin_again({.timeout = 1, .peer = 0xfffff0});
       go(s, IBV_WR_SEND, 8);
     },
     {V::no_path, Fate::kFails}},
    {"NobodyThere", kUc,
     [](ErrorScene& s) {
       s.begin_again({.peer = 0xfffff0});
       go(s, IBV_WR_SEND, 8);
     },
     kDropped},
    {"ProcessHasLeft",
     kAcknowledged,
     [](ErrorScene& s) {
       connect_to_one_that_leaves(s);
       go(s, IBV_WR_SEND, 8);
     },
     {V::peer_gone, Fate::kFails}},
    {"ProcessHasLeft", kUc,
     [](ErrorScene& s) {
       connect_to_one_that_leaves(s);
       go(s, IBV_WR_SEND, 8);
     },
     kDropped},
    {"ProcessDoesNotAnswer", kAcknowledged, write_over_what_nobody_scatters, {V::peer_silent, Fate::kFails}},
    {"AnotherPsn",
     kAcknowledged,
     [](ErrorScene& s) {
       s.begin_again({.timeout = 1, .rq_psn = 5});
       go(s, IBV_WR_SEND, 8);
     },
     {V::peer_mismatch, Fate::kFails}},
    {"PortDown",
     kAcknowledged,
     [](ErrorScene& s) {
       s.begin_again(kImpatient);
       port_down(s);
       go(s, IBV_WR_SEND, 8);
     },
     {V::port_down, Fate::kFails, Fate::kStays, {}, IBV_EVENT_PORT_ERR}},
    {"PortDown",
     kUnacknowledged,
     [](ErrorScene& s) {
       port_down(s);
       go(s, IBV_WR_SEND, 8);
     },
     {V::none, Fate::kStays, Fate::kStays, {}, IBV_EVENT_PORT_ERR}},

    // ---- flush ----
    {"PostedInError",
     kAll,
     [](ErrorScene& s) {
       ASSERT_EQ(to_state(s.requester(), IBV_QPS_ERR), 0);
       go(s, IBV_WR_SEND, 8);
     },
     {V::flushed, Fate::kError}},
};

// ---- the test ----

struct ErrorCase {
  const Row* row;
  TransportType transport;
};
void PrintTo(const ErrorCase& chosen, std::ostream* out) { *out << chosen.row->name; }

std::vector<ErrorCase> all_cases() {
  std::vector<ErrorCase> all;
  for (const Row& row : kRows)
    for (const TransportType transport : {TransportType::kRc, TransportType::kUc, TransportType::kUd, TransportType::kXrc})
      if ((row.transports & bit(transport)) != 0) all.push_back({&row, transport});
  return all;
}

struct ErrorTable : ::testing::TestWithParam<ErrorCase> {
  const Expected& expected() const { return GetParam().row->expected; }
  ibv_qp_state state_after(Fate fate, bool requester) const {
    switch (fate) {
      case Fate::kStays:
        return IBV_QPS_RTS;
      case Fate::kFails:
        return requester && !scene.acknowledged() ? IBV_QPS_SQE : IBV_QPS_ERR;
      case Fate::kError:
        return IBV_QPS_ERR;
      case Fate::kReset:
        return IBV_QPS_RESET;
    }
    return IBV_QPS_UNKNOWN;
  }
  void provoke() { GetParam().row->provoke(scene); }
  static void expect_completion(const ibv_wc& wc, VendorError error, uint64_t wr_id) {
    EXPECT_EQ(wc.status, find_vendor_error(static_cast<uint32_t>(error))->status);
    EXPECT_EQ(wc.vendor_err, static_cast<uint32_t>(error));
    EXPECT_EQ(wc.wr_id, wr_id);
  }
  ErrorScene scene{GetParam().transport};
};

TEST_P(ErrorTable, BothSidesEndAsTheTableSays) {
  provoke();
  expect_completion(completion(scene.send_cq.get()), expected().completion, 77);
  EXPECT_EQ(scene.state_of(scene.requester()), state_after(expected().requester, true));
  EXPECT_EQ(scene.state_of(scene.responder()), state_after(expected().responder, false));
  if (expected().receive.has_value())
    expect_completion(completion(scene.recv_cq.get()), *expected().receive, 88);
  EXPECT_TRUE(nothing(scene.recv_cq.get()));
  EXPECT_TRUE(nothing(scene.send_cq.get()));
}

TEST_P(ErrorTable, TheEventIsTheTablesAndTheOnlyOne) {
  provoke();
  completion(scene.send_cq.get());
  scene.state_of(scene.responder());
  if (expected().event != 0) {
    const AsyncEvent event = async_event(scene.context.get());
    EXPECT_EQ(event.type, static_cast<uint32_t>(expected().event));
    EXPECT_EQ(event.element, expected().event == IBV_EVENT_PORT_ERR ? 1u : 0xbu);
  }
  EXPECT_EQ(async_event(scene.context.get(), 0).type, UINT32_MAX);
}

// Rows in which a side has failed.
struct ErrorTableAfterwards : ErrorTable {};

TEST_P(ErrorTableAfterwards, WhatIsPostedIsFlushed) {
  provoke();
  completion(scene.send_cq.get());
  scene.state_of(scene.responder());
  if (expected().receive.has_value()) completion(scene.recv_cq.get());
  if (expected().requester != Fate::kStays) {
    ASSERT_EQ(scene.post(scene.request(IBV_WR_SEND, {scene.local.sge(0, 8)})), 0);
    expect_completion(completion(scene.send_cq.get()), VendorError::flushed, 77);
  }
  // An SRQ's requests do not belong to the failed queue pair.
  if (expected().responder == Fate::kError && scene.transport() != TransportType::kXrc) {
    scene.post_receive({scene.remote.sge(0, 64)});
    expect_completion(completion(scene.recv_cq.get()), VendorError::flushed, 88);
  }
}

std::string name_of_case(const ::testing::TestParamInfo<ErrorCase>& chosen) {
  return std::string(kTransportNames[static_cast<size_t>(chosen.param.transport)]) + chosen.param.row->name;
}
std::vector<ErrorCase> cases_of_failure() {
  std::vector<ErrorCase> all = all_cases();
  std::erase_if(all, [](const ErrorCase& chosen) {
    const Expected& expected = chosen.row->expected;
    return expected.requester == Fate::kStays && expected.responder != Fate::kError;
  });
  return all;
}
INSTANTIATE_TEST_SUITE_P(Of, ErrorTable, ::testing::ValuesIn(all_cases()), name_of_case);
INSTANTIATE_TEST_SUITE_P(Of, ErrorTableAfterwards, ::testing::ValuesIn(cases_of_failure()), name_of_case);

// Every vendor_err has a row, but for those that nothing here can cause yet.
TEST(ErrorTable, KnowsEveryVendorError) {
  const std::array without_reason = {V::bad_response, V::adapter_failed};
  for (uint32_t number = 0; number <= 0xff; ++number) {
    if (static_cast<uint32_t>(find_vendor_error(number)->error) != number) continue;
    const auto error = static_cast<V>(number);
    const bool has_row = std::any_of(std::begin(kRows), std::end(kRows), [&](const Row& row) {
      return row.expected.completion == error || row.expected.receive == error;
    });
    const bool excused =
        std::find(without_reason.begin(), without_reason.end(), error) != without_reason.end();
    EXPECT_NE(has_row, excused) << find_vendor_error(number)->name;
  }
}

}  // namespace
}  // namespace verbena
