// SPDX-License-Identifier: BSD-2-Clause
//
// Queue pairs: values that ibv_modify_qp refuses, and values that ibv_query_qp returns. Which attributes
// belong to which transition is in qp_table.cc.
#include <cstring>

#include "support/hop_limit.h"
#include "support/pair.h"

namespace conformance::qp_modify_chapter {
namespace {

class Fixture : public PairTest {
 protected:
  // Of iWARP, RESET and INIT are one state, IDLE, which some drivers report as INIT; there is no path, and
  // the connection manager, not ibv_modify_qp, takes the QP further.
  bool is_iwarp() { return context()->device->transport_type == IBV_TRANSPORT_IWARP; }
  void need_path() {
    if (is_iwarp()) throw NotTested{"iWARP: a QP gets its connection from the connection manager"};
  }

  // A QP of the type in `state`, connected to itself; values_ are its attributes.
  Qp qp_in(ibv_qp_state state, ibv_qp_type type = IBV_QPT_RC, Path path = {}) {
    if (!pd_) pd_ = make_pd(device());
    if (!cq_) cq_ = make_cq(device());
    QpSpec spec;
    spec.type = type;
    Qp qp = make_qp(pd_, cq_, spec);
    path.destination = qp->qp_num;
    values_ = attributes_for(device(), path);
    bring_to(qp, state, values_);
    return qp;
  }

  // One state further from RESET or INIT, with one value changed: refused, and nothing has changed.
  template <typename Change>
  void expect_refused(ibv_qp_state from, ibv_qp_type type, const char* what, Change change) {
    Qp qp = qp_in(from, type);
    const ibv_qp_state before = state_of(qp);
    const auto to = static_cast<ibv_qp_state>(from + 1);
    ibv_qp_attr attr = values_;
    attr.qp_state = to;
    attr.cur_qp_state = from;
    change(attr);
    EXPECT_TRUE(refused(modify(qp, attr, IBV_QP_STATE | transition_of(type, from, to)->required))) << what;
    EXPECT_EQ(state_of(qp), before) << what;
  }

  // One more than `limit` is refused, or the QP has no more than `limit`.
  void expect_bounded(ibv_qp_state from, uint8_t ibv_qp_attr::*field, int limit, int mask) {
    Qp qp = qp_in(from, IBV_QPT_RC);
    const auto to = static_cast<ibv_qp_state>(from + 1);
    ibv_qp_attr attr = values_;
    attr.qp_state = to;
    attr.*field = static_cast<uint8_t>(limit + 1);
    const int result = modify(qp, attr, IBV_QP_STATE | transition_of(IBV_QPT_RC, from, to)->required);
    if (result != 0) {
      EXPECT_TRUE(refused(result));
      EXPECT_EQ(state_of(qp), from);
    } else {
      EXPECT_LE(query(qp, mask).*field, limit);
    }
  }

  ibv_qp_attr query(ibv_qp* qp, int mask, ibv_qp_init_attr* init = nullptr) {
    ibv_qp_attr attr = {};
    ibv_qp_init_attr ignored = {};
    const int error = CALL(ibv_query_qp(qp, &attr, mask, init != nullptr ? init : &ignored));
    expect_query(error);
    EXPECT_TRUE(succeeded(error));
    return attr;
  }

  Pd pd_;
  Cq cq_;
  ibv_qp_attr values_ = {};
};

CONFORMANCE_TEST(qp, InvalidValueChangesNothing, "ibv_modify_qp.none-on-error") {
  Qp qp = qp_in(IBV_QPS_INIT);
  const ibv_qp_state state = state_of(qp);
  const ibv_qp_attr before = query(qp, IBV_QP_ACCESS_FLAGS | IBV_QP_PORT);
  ibv_qp_attr attr = values_;
  attr.qp_access_flags = 0;  // valid, and different
  attr.port_num = 0;         // not valid
  EXPECT_TRUE(refused(modify(qp, attr, IBV_QP_ACCESS_FLAGS | IBV_QP_PORT | IBV_QP_PKEY_INDEX)));
  EXPECT_EQ(state_of(qp), state);
  const ibv_qp_attr now = query(qp, IBV_QP_ACCESS_FLAGS | IBV_QP_PORT);
  EXPECT_EQ(now.qp_access_flags, before.qp_access_flags);
  // Some drivers give no port (seen_in of "ibv_query_qp.port-pkey"): whatever is there then may change.
  if (before.port_num == device().port_number()) {
    EXPECT_EQ(now.port_num, before.port_num);
  }
}

CONFORMANCE_TEST(qp, UnknownMaskBitIsRefused, "ibv_modify_qp.mask-bit") {
  Qp qp = qp_in(IBV_QPS_INIT);
  EXPECT_TRUE(refused(modify(qp, values_, 1 << 30)));
}

CONFORMANCE_TEST(qp, UnknownStateIsRefused, "ibv_modify_qp.state-value") {
  Qp qp = qp_in(IBV_QPS_INIT);
  const ibv_qp_state before = state_of(qp);
  for (const int state : {7, 8, 100}) {
    ibv_qp_attr attr = values_;
    attr.qp_state = static_cast<ibv_qp_state>(state);
    EXPECT_TRUE(refused(CALL(ibv_modify_qp(qp, &attr, IBV_QP_STATE)))) << state;
    EXPECT_EQ(state_of(qp), before);
  }
}

CONFORMANCE_TEST(qp, PortAndPkeyAreChecked, "ibv_modify_qp.port-range", "ibv_modify_qp.pkey-range") {
  {
    const About about("ibv_modify_qp.port-range");
    expect_refused(IBV_QPS_RESET, IBV_QPT_RC, "port 0", [](ibv_qp_attr& attr) { attr.port_num = 0; });
    expect_refused(IBV_QPS_RESET, IBV_QPT_RC, "port 254", [](ibv_qp_attr& attr) { attr.port_num = 254; });
  }
  const About about("ibv_modify_qp.pkey-range");
  if (is_iwarp()) throw NotClaimed{"iWARP has no P_Keys"};
  const uint16_t length = device().port().pkey_tbl_len;
  expect_refused(IBV_QPS_RESET, IBV_QPT_RC, "beyond the table",
                 [&](ibv_qp_attr& attr) { attr.pkey_index = length; });
}

CONFORMANCE_TEST(qp, AddressIsChecked, "ibv_modify_qp.sgid-range", "ibv_modify_qp.mtu-value",
                 "ibv_modify_qp.grh-required") {
  need_path();
  {
    const About about("ibv_modify_qp.mtu-value");
    expect_refused(IBV_QPS_INIT, IBV_QPT_RC, "0",
                   [](ibv_qp_attr& a) { a.path_mtu = static_cast<ibv_mtu>(0); });
    expect_refused(IBV_QPS_INIT, IBV_QPT_RC, "9",
                   [](ibv_qp_attr& a) { a.path_mtu = static_cast<ibv_mtu>(9); });
  }
  {
    const About about("ibv_modify_qp.sgid-range");
    if (!device().own_address().is_global) {
      not_claimed("the address vector has no GRH");
    } else if (device().port().gid_tbl_len > 255) {
      not_claimed("the GID table is as large as the attribute");
    } else {
      expect_refused(IBV_QPS_INIT, IBV_QPT_RC, "GID index beyond the table",
                     [](ibv_qp_attr& a) { a.ah_attr.grh.sgid_index = 255; });
    }
  }
  const About about("ibv_modify_qp.grh-required");
  if (!device().is_ethernet()) throw NotClaimed{"the port's link layer is not Ethernet"};
  expect_refused(IBV_QPS_INIT, IBV_QPT_RC, "without a GRH", [](ibv_qp_attr& a) { a.ah_attr.is_global = 0; });
}

CONFORMANCE_TEST(qp, WrongCurrentState, "ibv_modify_qp.cur-state-wrong") {
  Qp qp = qp_in(IBV_QPS_RTS);
  ibv_qp_attr attr = values_;
  attr.qp_state = IBV_QPS_RTS;
  attr.cur_qp_state = IBV_QPS_INIT;
  const int error = modify(qp, attr, IBV_QP_STATE | IBV_QP_CUR_STATE);
  EXPECT_GE(error, 0);
  EXPECT_EQ(state_of(qp), IBV_QPS_RTS);
  observe("ibv_modify_qp.cur-state-wrong", error == 0 ? "ignored" : "refused with " + errno_text(error));
}

// What a QP in INIT makes of a value that its field does not have.
CONFORMANCE_TEST(qp, ValuesBeyondTheirFields, "ibv_modify_qp.beyond-field", "ibv_modify_qp.long-timeout",
                 "ibv_modify_qp.local-access") {
  need_path();
  using Change = std::function<void(ibv_qp_attr&)>;
  const auto tries = [&](ibv_qp_state from, ibv_qp_state to, const Change& change) {
    const Qp qp = qp_in(from);
    ibv_qp_attr attr = values_;
    attr.qp_state = to;
    change(attr);
    return modify(qp, attr, IBV_QP_STATE | transition_of(IBV_QPT_RC, from, to)->required);
  };
  const auto seen = [](int error) {
    return error == 0 ? std::string("taken") : "refused with " + errno_text(error);
  };
  {
    const About about("ibv_modify_qp.beyond-field");
    const int timeout = tries(IBV_QPS_RTR, IBV_QPS_RTS, [](ibv_qp_attr& a) { a.timeout = 32 + 14; });
    const int retries = tries(IBV_QPS_RTR, IBV_QPS_RTS, [](ibv_qp_attr& a) { a.retry_cnt = 8 + 3; });
    const int number = tries(IBV_QPS_INIT, IBV_QPS_RTR, [](ibv_qp_attr& a) { a.dest_qp_num |= 1u << 24; });
    for (const int error : {timeout, retries, number}) EXPECT_GE(error, 0);
    observe("ibv_modify_qp.beyond-field",
            "timeout " + seen(timeout) + ", retry_cnt " + seen(retries) + ", dest_qp_num " + seen(number));
  }
  {
    const About about("ibv_modify_qp.long-timeout");
    const int error = tries(IBV_QPS_RTR, IBV_QPS_RTS, [](ibv_qp_attr& a) { a.timeout = 31; });
    EXPECT_GE(error, 0);
    observe("ibv_modify_qp.long-timeout", seen(error));
  }
  const About about("ibv_modify_qp.local-access");
  const Qp qp = qp_in(IBV_QPS_RESET);
  ibv_qp_attr attr = values_;
  attr.qp_state = IBV_QPS_INIT;
  attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  ASSERT_TRUE(succeeded(
      modify(qp, attr, IBV_QP_STATE | transition_of(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT)->required)));
  EXPECT_NE(query(qp, IBV_QP_ACCESS_FLAGS).qp_access_flags & IBV_ACCESS_REMOTE_WRITE, 0u);
}

CONFORMANCE_TEST(qp, EmptyMask, "ibv_modify_qp.mask-0") {
  Qp qp = qp_in(IBV_QPS_INIT);
  const ibv_qp_state before = state_of(qp);
  const int error = modify(qp, values_, 0);
  EXPECT_EQ(state_of(qp), before);
  observe("ibv_modify_qp.mask-0", error == 0 ? "accepted" : "refused with " + errno_text(error));
}

CONFORMANCE_TEST(qp, ReadLimitsAreChecked, "ibv_modify_qp.rd-atomic-range",
                 "ibv_modify_qp.dest-rd-atomic-range") {
  need_path();
  const int initiator = device().attributes().max_qp_init_rd_atom,
            target = device().attributes().max_qp_rd_atom;
  {
    const About about("ibv_modify_qp.dest-rd-atomic-range");
    if (target < 255) {
      expect_bounded(IBV_QPS_INIT, &ibv_qp_attr::max_dest_rd_atomic, target, IBV_QP_MAX_DEST_RD_ATOMIC);
    } else {
      not_claimed("the limit is as large as the attribute");
    }
  }
  const About about("ibv_modify_qp.rd-atomic-range");
  if (initiator >= 255) throw NotClaimed{"the limit is as large as the attribute"};
  expect_bounded(IBV_QPS_RTR, &ibv_qp_attr::max_rd_atomic, initiator, IBV_QP_MAX_QP_RD_ATOMIC);
}

CONFORMANCE_TEST(qp, AlternatePathWithoutMigration, "ibv_modify_qp.alt-path") {
  if ((device().attributes().device_cap_flags & IBV_DEVICE_AUTO_PATH_MIG) != 0)
    throw NotClaimed{"IBV_DEVICE_AUTO_PATH_MIG is claimed"};
  Qp qp = qp_in(IBV_QPS_INIT);
  ibv_qp_attr attr = values_;
  attr.qp_state = IBV_QPS_RTR;
  attr.alt_ah_attr = attr.ah_attr;
  attr.alt_port_num = attr.port_num;
  const int mask =
      IBV_QP_STATE | IBV_QP_ALT_PATH | transition_of(IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR)->required;
  const int error = modify(qp, attr, mask);
  EXPECT_GE(error, 0);
  observe("ibv_modify_qp.alt-path", error == 0 ? "taken" : "refused with " + errno_text(error));
}

CONFORMANCE_TEST(qp, ResetAndUpAgain, "ibv_modify_qp.reset-clears") {
  ASSERT_EQ(near().receive(0, 64, 99), 0);  // gone after RESET
  if (topology().is_loopback()) {           // on another device it would tell of that one
    ASSERT_EQ(far().receive(0, 64, 99), 0);
  }
  ASSERT_EQ(near().to_state(IBV_QPS_RESET), 0);
  const int error = far().to_state(IBV_QPS_RESET);
  if (error != 0 && !topology().is_loopback())
    throw NotTested{"the far end cannot be taken to RESET: " + errno_text(error)};
  ASSERT_EQ(error, 0);
  pair().connect();
  for (const auto& [sender, receiver] : {std::pair(&near(), &far()), {&far(), &near()}}) {
    ASSERT_EQ(receiver->receive(0, 64, 7), 0);
    ASSERT_EQ(sender->post(send_request({{0, 8}})), 0);
    EXPECT_EQ(sender->completion().status, IBV_WC_SUCCESS);
    EXPECT_EQ(receiver->received().id, 7u);
  }
}

CONFORMANCE_TEST(qp, QueryGivesTheState, "ibv_query_qp.zero", "ibv_query_qp.state") {
  state_of(qp_in(IBV_QPS_RESET));  // is there such a verb at all?
  for (const ibv_qp_state state :
       {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_ERR}) {
    if (state == IBV_QPS_RESET && is_iwarp()) continue;
    try {
      const Qp qp = qp_in(state);
      ABOUT("ibv_query_qp.state") EXPECT_EQ(state_of(qp), state);
    } catch (const NotClaimed&) {
      if (state != IBV_QPS_SQD) throw;
    }
  }
}

CONFORMANCE_TEST(qp, QueryGivesTheCreation, "ibv_query_qp.init-attr", "ibv_query_qp.cap") {
  const Pd pd = make_pd(device());
  const Cq send = make_cq(device()), receive = make_cq(device());
  int mark = 0;
  QpSpec spec;
  spec.qp_context = &mark;
  spec.signal_all = true;
  ibv_qp_init_attr created = init_attributes(spec, send, receive);
  Qp qp(CALL(ibv_create_qp(pd, &created)));
  if (!qp && is_refusal_of_qp(errno)) throw NotClaimed{"QPs of type RC refused with " + errno_text(errno)};
  ASSERT_NE(qp, nullptr);
  ibv_qp_init_attr init = {};
  query(qp, IBV_QP_CAP, &init);
  ABOUT("ibv_query_qp.init-attr") {
    EXPECT_EQ(init.send_cq, send.get());
    EXPECT_EQ(init.recv_cq, receive.get());
    EXPECT_EQ(init.srq, nullptr);
    EXPECT_EQ(init.qp_type, IBV_QPT_RC);
    EXPECT_EQ(init.sq_sig_all, 1);
    EXPECT_EQ(init.qp_context, &mark);
    spec.signal_all = false;
    ibv_qp_init_attr other = init_attributes(spec, send, receive);
    Qp unsignaled(CALL(ibv_create_qp(pd, &other)));
    ASSERT_NE(unsignaled, nullptr);
    init = {};
    query(unsignaled, IBV_QP_CAP, &init);
    EXPECT_EQ(init.sq_sig_all, 0);
  }
  const About about("ibv_query_qp.cap");
  // Which attributes are valid depends on the state: in RESET a device may have none but the state.
  bring_to(qp, IBV_QPS_INIT, attributes_for(device(), {}));
  const ibv_qp_attr attr = query(qp, IBV_QP_CAP);
  EXPECT_GE(attr.cap.max_send_wr, created.cap.max_send_wr);
  EXPECT_GE(attr.cap.max_recv_wr, created.cap.max_recv_wr);
  EXPECT_GE(attr.cap.max_send_sge, created.cap.max_send_sge);
  EXPECT_GE(attr.cap.max_recv_sge, created.cap.max_recv_sge);
}

CONFORMANCE_TEST(qp, QueryGivesWhatWasSetInInit, "ibv_query_qp.access", "ibv_query_qp.port-pkey") {
  for (const int access : {0, +IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE}) {
    // In INIT a driver may leave out what needs max_dest_rd_atomic.
    Qp qp = qp_in(IBV_QPS_RTR, IBV_QPT_RC, {.access = access});
    const ibv_qp_attr attr = query(qp, IBV_QP_ACCESS_FLAGS | IBV_QP_PORT | IBV_QP_PKEY_INDEX);
    constexpr unsigned remote = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    ABOUT("ibv_query_qp.access") EXPECT_EQ(attr.qp_access_flags & remote, static_cast<unsigned>(access));
    ABOUT("ibv_query_qp.port-pkey") {
      EXPECT_EQ(attr.port_num, device().port_number());
      EXPECT_EQ(attr.pkey_index, 0);
    }
  }
}

CONFORMANCE_TEST(qp, QueryGivesTheQkey, "ibv_query_qp.qkey") {
  Qp qp = qp_in(IBV_QPS_INIT, IBV_QPT_UD, {.qkey = 0x12345678});
  EXPECT_EQ(query(qp, IBV_QP_QKEY).qkey, 0x12345678u);
}

CONFORMANCE_TEST(qp, QueryGivesWhatWasSetInRtr, "ibv_query_qp.path-mtu", "ibv_query_qp.dest-qpn",
                 "ibv_query_qp.ah-attr", "ibv_query_qp.hop-limit") {
  Qp qp = qp_in(IBV_QPS_INIT);
  ibv_qp_attr attr = values_;
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_256;
  attr.dest_qp_num = 0xabcde;
  attr.ah_attr.grh.hop_limit = 33;
  attr.ah_attr.grh.traffic_class = 0x20;
  attr.ah_attr.grh.flow_label = 0x12345;
  attr.ah_attr.sl = 2;
  const int mask = IBV_QP_STATE | transition_of(IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR)->required;
  int error = modify(qp, attr, mask);
  // A fresh QP for another try: a driver may count a refused one as further on.
  if (error > 0 && !device().is_ethernet()) {  // a service level may be mapped to no lane
    qp = qp_in(IBV_QPS_INIT);
    attr.ah_attr.sl = values_.ah_attr.sl;
    error = modify(qp, attr, mask);
  }
  if (error > 0) {  // no page says that a device takes a path MTU of 256
    qp = qp_in(IBV_QPS_INIT);
    attr.path_mtu = values_.path_mtu;
    error = modify(qp, attr, mask);
  }
  ASSERT_TRUE(succeeded(error));
  const ibv_qp_attr now = query(qp, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN);
  ABOUT("ibv_query_qp.path-mtu") EXPECT_EQ(now.path_mtu, attr.path_mtu);
  ABOUT("ibv_query_qp.dest-qpn") EXPECT_EQ(now.dest_qp_num, 0xabcdeu);
  const About about("ibv_query_qp.ah-attr");
  EXPECT_EQ(now.ah_attr.port_num, attr.ah_attr.port_num);
  if (device().is_ethernet()) {
    EXPECT_TRUE(now.ah_attr.sl == 2 || now.ah_attr.sl == 0)
        << "seen: " << int{now.ah_attr.sl};  // no SL on the wire
  } else {
    EXPECT_EQ(now.ah_attr.sl, attr.ah_attr.sl);
  }
  EXPECT_EQ(now.ah_attr.is_global, attr.ah_attr.is_global);
  if (!attr.ah_attr.is_global) {
    const About hops("ibv_query_qp.hop-limit");
    not_claimed("the address vector has no GRH");
    return;
  }
  EXPECT_EQ(memcmp(now.ah_attr.grh.dgid.raw, attr.ah_attr.grh.dgid.raw, 16), 0)
      << gid_text(attr.ah_attr.grh.dgid) << " and " << gid_text(now.ah_attr.grh.dgid);
  EXPECT_EQ(now.ah_attr.grh.sgid_index, attr.ah_attr.grh.sgid_index);
  EXPECT_EQ(now.ah_attr.grh.traffic_class, 0x20);
  EXPECT_EQ(now.ah_attr.grh.flow_label, 0x12345u);
  const About hops("ibv_query_qp.hop-limit");
  if (!now.ah_attr.is_global) {
    not_tested("the address vector reads without its GRH: ibv_query_qp.ah-attr");
    return;
  }
  expect_hop_limit(device(), now.ah_attr.grh.hop_limit, 33);
}

CONFORMANCE_TEST(qp, QueryGivesWhatWasSetInRts, "ibv_query_qp.psn", "ibv_query_qp.timers",
                 "ibv_query_qp.rd-atomic") {
  Path path;
  path.psn = 0xfedcba;
  path.timeout = 17;
  path.retry_count = 5;
  path.rnr_retry = 3;
  path.min_rnr_timer = 19;
  path.reads = 1;
  Qp qp = qp_in(IBV_QPS_RTS, IBV_QPT_RC, path);
  const ibv_qp_attr attr =
      query(qp, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_RQ_PSN | IBV_QP_SQ_PSN |
                    IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER | IBV_QP_MAX_DEST_RD_ATOMIC);
  {
    const About about("ibv_query_qp.psn");
    EXPECT_EQ(attr.rq_psn, 0xfedcbau);
    EXPECT_EQ(attr.sq_psn, 0xfedcbau);
  }
  {
    const About about("ibv_query_qp.timers");
    EXPECT_EQ(attr.timeout, 17);
    EXPECT_EQ(attr.retry_cnt, 5);
    EXPECT_EQ(attr.rnr_retry, 3);
    EXPECT_EQ(attr.min_rnr_timer, 19);
  }
  const About about("ibv_query_qp.rd-atomic");
  EXPECT_EQ(attr.max_rd_atomic, 1);
  EXPECT_EQ(attr.max_dest_rd_atomic, 1);
}

CONFORMANCE_TEST(qp, DrainedQueueIsNotDraining, "ibv_query_qp.draining") {
  Qp qp = qp_in(IBV_QPS_SQD);
  const auto deadline = std::chrono::steady_clock::now() + scaled(std::chrono::seconds(2));
  ibv_qp_attr attr = query(qp, IBV_QP_STATE);
  while (attr.sq_draining != 0 && std::chrono::steady_clock::now() < deadline) attr = query(qp, IBV_QP_STATE);
  EXPECT_EQ(attr.sq_draining, 0);
}

CONFORMANCE_TEST(qp, CapacityStaysAsItIs, "ibv_modify_qp.resize") {
  need_path();
  if ((device().attributes().device_cap_flags & IBV_DEVICE_RESIZE_MAX_WR) != 0)
    throw NotClaimed{"QPs can be resized: the refusal does not apply"};
  for (const ibv_qp_state from : {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
    for (const ibv_qp_state to : {from, static_cast<ibv_qp_state>(from + 1)}) {
      const auto transition = transition_of(IBV_QPT_RC, from, to);
      if (!transition || to == IBV_QPS_SQD) continue;
      Qp qp = qp_in(from);
      ibv_qp_attr attr = values_;
      attr.qp_state = to;
      attr.cur_qp_state = from;
      attr.cap = query(qp, IBV_QP_CAP).cap;
      const uint32_t before = attr.cap.max_send_wr;
      attr.cap.max_send_wr = before * 4;
      EXPECT_TRUE(refused(modify(qp, attr, IBV_QP_STATE | IBV_QP_CAP | transition->required)))
          << state_name(from) << " to " << state_name(to);
      if (from != IBV_QPS_RESET) {  // where cap need not be valid
        EXPECT_EQ(query(qp, IBV_QP_CAP).cap.max_send_wr, before);
      }
      EXPECT_EQ(state_of(qp), from);
    }
  }
}

}  // namespace
}  // namespace conformance::qp_modify_chapter
