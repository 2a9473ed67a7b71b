// SPDX-License-Identifier: BSD-2-Clause
//
// The whole table of transitions, generated: each legal one, with each required attribute left out in turn,
// each optional one added in turn, and with attributes that do not belong; and each illegal one tried.
#include <fcntl.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <string>

#include "suite/family.h"
#include "support/ends.h"
#include "support/fixture.h"
#include "support/objects.h"
#include "support/transitions.h"

namespace conformance::qp_table_chapter {
namespace {

constexpr ibv_qp_state reachable[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR,
                                      IBV_QPS_RTS,   IBV_QPS_SQD,  IBV_QPS_ERR};

class TableTest : public DeviceTest {
 protected:
  explicit TableTest(ibv_qp_type type) : type_(type) {}

  // A QP of the type in `state`, connected to itself.
  Qp qp_in(ibv_qp_state state) {
    if (context()->device->transport_type == IBV_TRANSPORT_IWARP)
      throw NotTested{"iWARP: the table of transitions is that of the InfiniBand specification"};
    if (!pd_) pd_ = make_pd(device());
    if (!cq_) cq_ = make_cq(device());
    Qp qp = type_ == IBV_QPT_XRC_SEND || type_ == IBV_QPT_XRC_RECV ? make_xrc()
                                                                   : make_qp(pd_, cq_, {.type = type_});
    values_ = attributes_for(device(), {.destination = qp->qp_num});
    bring_to(qp, state == IBV_QPS_SQE ? IBV_QPS_RTS : state, values_);
    if (state == IBV_QPS_SQE) fail_a_request(qp);
    return qp;
  }

  Qp make_xrc() {
    if ((device().attributes().device_cap_flags & IBV_DEVICE_XRC) == 0)
      throw NotClaimed{"device_cap_flags has no XRC"};
    ibv_xrcd_init_attr domain = {};
    domain.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    domain.fd = -1;
    domain.oflags = O_CREAT;
    if (!xrcd_) xrcd_ = Xrcd(CALL(ibv_open_xrcd(context(), &domain)));
    ibv_qp_init_attr_ex attr = {};
    attr.qp_type = type_;
    attr.comp_mask = type_ == IBV_QPT_XRC_SEND ? IBV_QP_INIT_ATTR_PD : IBV_QP_INIT_ATTR_XRCD;
    attr.pd = pd_;
    attr.xrcd = xrcd_;
    attr.send_cq = type_ == IBV_QPT_XRC_SEND ? cq_.get() : nullptr;
    attr.cap = {8, 0, 1, 0, 0};
    Qp qp(CALL(ibv_create_qp_ex(context(), &attr)));
    if (!qp) throw Deviation{"an XRC QP; seen: " + errno_text(errno), Where::current()};
    return qp;
  }

  // The state after a request has failed. A driver may learn of it only after the completion, by an event.
  static ibv_qp_state state_once_failed(ibv_qp* qp) {
    const auto deadline = std::chrono::steady_clock::now() + scaled(std::chrono::seconds(1));
    ibv_qp_attr attr = {};
    ibv_qp_init_attr init = {};
    while (ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0 && attr.qp_state == IBV_QPS_RTS &&
           std::chrono::steady_clock::now() < deadline)
      give_way();
    return state_of(qp);
  }

  // Posts a request with a key that no region has: the QP is in SQE then, or in ERR if the device has no SQE.
  void fail_a_request(ibv_qp* qp) {
    ibv_ah_attr address = device().own_address();
    if (type_ == IBV_QPT_UD) ah_ = Ah(CALL(ibv_create_ah(pd_, &address)));
    ibv_sge element{reinterpret_cast<uint64_t>(this), 8, 0x5a5a5a5a};
    ibv_send_wr wr = {}, *bad = nullptr;
    wr.sg_list = &element;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    if (type_ == IBV_QPT_UD) wr.wr.ud = {ah_, qp->qp_num, 0x11111111};
    if (CALL(ibv_post_send(qp, &wr, &bad)) != 0) throw NotTested{"the request is refused when it is posted"};
    const ibv_wc wc = completion(cq_);
    if (wc.status == IBV_WC_SUCCESS)  // error.unreliable.requester tells
      throw NotTested{"the request with a wrong lkey succeeded"};
    failed_ = state_once_failed(qp);
    if (failed_ != IBV_QPS_SQE && is_sqe_needed_)
      throw NotTested{std::string("the device went to ") + state_name(failed_) + ", not to SQE"};
  }

  ibv_qp_attr values(ibv_qp_state from, ibv_qp_state to) const {
    ibv_qp_attr attr = values_;
    attr.qp_state = to;
    attr.cur_qp_state = from;
    return attr;
  }

  const ibv_qp_type type_;
  ibv_qp_attr values_ = {};
  Pd pd_;
  Cq cq_;
  Ah ah_;
  Xrcd xrcd_;
  bool is_sqe_needed_ = true;
  ibv_qp_state failed_ = IBV_QPS_RESET;  // after fail_a_request()
};

class LegalTest : public TableTest {
 public:
  LegalTest(ibv_qp_type type, Transition transition) : TableTest(type), row_(transition) {}

 protected:
  int try_mask(ibv_qp* qp, int mask) {
    if (row_.from == IBV_QPS_INIT && row_.to == IBV_QPS_ERR) need_family("family.init-err");
    return modify(qp, values(row_.from, row_.to), IBV_QP_STATE | mask);
  }
  const Transition row_;
};

class Required final : public LegalTest {
  using LegalTest::LegalTest;
  void run() override {
    Qp qp = qp_in(row_.from);
    const bool changes_nothing = row_.from == IBV_QPS_INIT && row_.to == IBV_QPS_INIT;
    const ibv_qp_attr before = changes_nothing ? set_in_init(qp) : ibv_qp_attr{};
    const int error = try_mask(qp, row_.required);
    if (row_.to == IBV_QPS_SQD && row_.from == IBV_QPS_RTS) expect_sqd(error);
    EXPECT_TRUE(succeeded(error));
    EXPECT_EQ(state_of(qp), row_.to);
    if (!changes_nothing) return;
    const ibv_qp_attr after = set_in_init(qp);
    EXPECT_EQ(after.pkey_index, before.pkey_index);
    EXPECT_EQ(after.port_num, before.port_num);
    if (type_ == IBV_QPT_UD)
      EXPECT_EQ(after.qkey, before.qkey);
    else
      EXPECT_EQ(after.qp_access_flags, before.qp_access_flags);
  }
  // What the transition to INIT asks for: a device may refuse to tell what QPs of this type do not have.
  ibv_qp_attr set_in_init(ibv_qp* qp) {
    ibv_qp_attr attr = {};
    ibv_qp_init_attr init = {};
    const int mask = transition_of(type_, IBV_QPS_RESET, IBV_QPS_INIT)->required;
    const int error = CALL(ibv_query_qp(qp, &attr, mask, &init));
    expect_query(error);
    if (error != 0)
      throw Deviation{"ibv_query_qp; expected: 0; seen: " + errno_text(error), Where::current()};
    return attr;
  }
};

class LeftOut final : public LegalTest {
  using LegalTest::LegalTest;
  void run() override {
    Qp qp = qp_in(row_.from);
    for (const int bit : attribute_bits()) {
      if ((row_.required & bit) == 0) continue;
      EXPECT_TRUE(refused(try_mask(qp, row_.required & ~bit))) << "without " << attribute_name(bit);
      EXPECT_EQ(state_of(qp), row_.from) << "without " << attribute_name(bit);
      if (HasFailure()) qp = qp_in(row_.from);
    }
    EXPECT_TRUE(succeeded(try_mask(qp, row_.required))) << "after the refusals";
  }
};

class Optional final : public LegalTest {
  using LegalTest::LegalTest;
  void run() override {
    if (row_.to == IBV_QPS_SQD) qp_in(IBV_QPS_SQD);
    for (const int bit : attribute_bits()) {
      // IBV_QP_PORT in SQD is in the kernel's table only; IBV_QP_AV of UC fails in uverbs, which adds the
      // port.
      const bool doubtful = row_.from == IBV_QPS_SQD && row_.to == IBV_QPS_SQD &&
                            (bit == IBV_QP_PORT || (bit == IBV_QP_AV && type_ == IBV_QPT_UC));
      if ((row_.optional & bit) == 0 || doubtful) continue;
      Qp qp = qp_in(row_.from);
      EXPECT_TRUE(succeeded(try_mask(qp, row_.required | bit))) << "with " << attribute_name(bit);
      EXPECT_EQ(state_of(qp), row_.to) << "with " << attribute_name(bit);
    }
  }
};

// Attributes of the half that an XRC QP does not have are dropped unread: Linux
// drivers/infiniband/core/uverbs_cmd.c, modify_qp_mask().
int ignored_attributes(ibv_qp_type type) {
  if (type == IBV_QPT_XRC_SEND) return IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  if (type == IBV_QPT_XRC_RECV) return IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
  return 0;
}

class Extra final : public LegalTest {
  using LegalTest::LegalTest;
  void run() override {
    Qp qp = qp_in(row_.from);
    for (const int bit : attribute_bits()) {
      if (((row_.required | row_.optional | ignored_attributes(type_)) & bit) != 0) continue;
      EXPECT_TRUE(refused(try_mask(qp, row_.required | bit))) << "with " << attribute_name(bit);
      EXPECT_EQ(state_of(qp), row_.from) << "with " << attribute_name(bit);
      if (HasFailure()) qp = qp_in(row_.from);
    }
  }
};

class Illegal final : public TableTest {
 public:
  Illegal(ibv_qp_type type, ibv_qp_state from) : TableTest(type), from_(from) {}

 private:
  void run() override {
    Qp qp = qp_in(from_);
    for (const ibv_qp_state to : all_states) {
      if (transition_of(type_, from_, to) || (from_ == IBV_QPS_RESET && to == IBV_QPS_ERR)) continue;
      // With no attribute, and with those that lead there from the state before it.
      for (const ibv_qp_state before : {from_, IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR}) {
        const auto usual = transition_of(type_, before, to);
        const int mask = usual ? usual->required : 0;
        EXPECT_TRUE(refused(modify(qp, values(from_, to), IBV_QP_STATE | mask))) << "to " << state_name(to);
        EXPECT_EQ(state_of(qp), from_) << "after trying " << state_name(to);
        if (HasFailure()) return;
      }
    }
  }
  const ibv_qp_state from_;
};

class ResetToError final : public TableTest {
 public:
  ResetToError(ibv_qp_type type, ClauseId clause) : TableTest(type), clause_(clause) {}

 private:
  void run() override {
    Qp qp = qp_in(IBV_QPS_RESET);
    const int error = modify(qp, values(IBV_QPS_RESET, IBV_QPS_ERR), IBV_QP_STATE);
    EXPECT_GE(error, 0);
    EXPECT_EQ(state_of(qp), error == 0 ? IBV_QPS_ERR : IBV_QPS_RESET);
    observe(clause_, error == 0 ? "goes to ERR" : "refused with " + errno_text(error));
  }
  const ClauseId clause_;
};

class SqeEntered final : public TableTest {
 public:
  SqeEntered(ibv_qp_type type, ClauseId clause) : TableTest(type), clause_(clause) {}

 private:
  void run() override {
    is_sqe_needed_ = false;
    const Qp qp = qp_in(IBV_QPS_SQE);
    EXPECT_TRUE(failed_ == IBV_QPS_SQE || failed_ == IBV_QPS_ERR) << "seen: " << state_name(failed_);
    observe(clause_, std::string("goes to ") + state_name(failed_));
  }
  const ClauseId clause_;
};

// Flushed in SQE, received in SQE, and sent again after RTS; by a QP that is connected to itself.
class SqeFlushes final : public TableTest {
 public:
  explicit SqeFlushes(ibv_qp_type type) : TableTest(type) {}

 private:
  int send(ibv_qp* qp, const Mr& mr, uint64_t id) {
    ibv_sge element{buffer_.address(), 8, mr->lkey};
    ibv_send_wr wr = {}, *bad = nullptr;
    wr.wr_id = id;
    wr.sg_list = &element;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    if (type_ == IBV_QPT_UD) wr.wr.ud = {ah_, qp->qp_num, 0x11111111};
    return CALL(ibv_post_send(qp, &wr, &bad));
  }
  void run() override {
    const Qp qp = qp_in(IBV_QPS_SQE);
    const Mr mr = make_mr(pd_, buffer_);
    if (send(qp, mr, 7) == 0) {  // some devices take nothing in SQE
      const ibv_wc flushed = completion(cq_);
      EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR) << wc_text(flushed);
      EXPECT_EQ(flushed.wr_id, 7u);
    }
    ibv_sge element{buffer_.address(64), 64, mr->lkey};
    ibv_recv_wr receive = {9, nullptr, &element, 1}, *bad = nullptr;
    ASSERT_EQ(CALL(ibv_post_recv(qp, &receive, &bad)), 0);
    ASSERT_TRUE(succeeded(modify(qp, values(IBV_QPS_SQE, IBV_QPS_RTS), IBV_QP_STATE)));
    ASSERT_TRUE(succeeded(send(qp, mr, 8)));
    for (const ibv_wc& wc : completions(cq_, 2)) EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << wc_text(wc);
  }
  const Buffer buffer_{256};
};

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::string camel(std::string text) { return test_name(lower(std::move(text))); }

// A clause's chapter is that of the file it is in.
void add(const std::string& name, const std::string& clause, std::function<testing::Test*()> make) {
  const auto id = ClauseId::find(clause);
  const std::string chapter(id ? id->clause().chapter : "qp_table");
  register_generated(chapter.c_str(), name, {clause}, Traits(), __FILE__, __LINE__, std::move(make));
}

void generate(ibv_qp_type type, std::initializer_list<ibv_qp_state> origins) {
  const std::string type_key = "ibv_modify_qp." + lower(type_name(type));
  for (const ibv_qp_state from : origins) {
    for (const ibv_qp_state to : reachable) {
      const auto row = transition_of(type, from, to);
      if (!row) continue;
      const std::string key = type_key + '.' + lower(state_name(from)) + '-' + lower(state_name(to));
      const std::string name =
          camel(type_name(type)) + camel(state_name(from)) + "To" + camel(state_name(to));
      const Transition t = *row;
      add(name, key, [=]() -> testing::Test* { return new Required(type, t); });
      if (t.required != 0)
        add(name + "LeftOut", key + ".required", [=]() -> testing::Test* { return new LeftOut(type, t); });
      if (t.optional != 0)
        add(name + "Optional", key + ".optional", [=]() -> testing::Test* { return new Optional(type, t); });
      add(name + "Extra", key + ".extra", [=]() -> testing::Test* { return new Extra(type, t); });
    }
    add(camel(type_name(type)) + "NowhereElseFrom" + camel(state_name(from)),
        type_key + ".illegal-from-" + lower(state_name(from)),
        [=]() -> testing::Test* { return new Illegal(type, from); });
  }
  const std::string clause = type_key + ".reset-err";
  if (const auto id = ClauseId::find(clause); id && *origins.begin() == IBV_QPS_RESET)
    add(camel(type_name(type)) + "ResetToErr", clause,
        [=]() -> testing::Test* { return new ResetToError(type, *id); });
}

void generate_sqe(ibv_qp_type type) {
  const std::string type_key = "ibv_modify_qp." + lower(type_name(type));
  generate(type, {IBV_QPS_SQE});
  add(camel(type_name(type)) + "SqeFlushes", type_key + ".sqe-flushes",
      [=]() -> testing::Test* { return new SqeFlushes(type); });
  if (const auto id = ClauseId::find(type_key + ".sqe-entered"))
    add(camel(type_name(type)) + "SqeEntered", type_key + ".sqe-entered",
        [=]() -> testing::Test* { return new SqeEntered(type, *id); });
}

[[maybe_unused]] const bool generated = [] {
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV})
    generate(type, {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_ERR});
  for (const ibv_qp_type type : {IBV_QPT_UC, IBV_QPT_UD}) generate_sqe(type);
  return true;
}();

}  // namespace
}  // namespace conformance::qp_table_chapter
