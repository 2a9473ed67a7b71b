// SPDX-License-Identifier: BSD-2-Clause
//
// Posting requests, the whole product, generated: every opcode on every type of QP, in every state, with
// every set of send flags. The tables are those of ibv_post_send(3).
#include <string>
#include <vector>

#include "suite/family.h"
#include "support/pair.h"

namespace conformance::post_table_chapter {
namespace {

constexpr unsigned rc = 1, uc = 2, ud = 4, xrc = 8, connected = rc | uc | xrc, reliable = rc | xrc;

struct Type {
  const char* key;
  ibv_qp_type type;
  unsigned bit;
};
constexpr Type types[] = {
    {"rc", IBV_QPT_RC, rc}, {"uc", IBV_QPT_UC, uc}, {"ud", IBV_QPT_UD, ud}, {"xrc", IBV_QPT_XRC_SEND, xrc}};

struct Operation {
  const char* key;
  ibv_wr_opcode opcode;
  unsigned types;  // that have it
  unsigned flags;  // valid besides IBV_SEND_SIGNALED, and IBV_SEND_FENCE on RC
  bool is_of_window = false;

  bool is_of(const Type& type) const { return (types & type.bit) != 0; }
  unsigned flags_on(const Type& type) const {
    return flags | IBV_SEND_SIGNALED | (type.bit == rc ? unsigned{IBV_SEND_FENCE} : 0u);
  }
};
constexpr unsigned message = IBV_SEND_SOLICITED | IBV_SEND_INLINE;
constexpr Operation operations[] = {{"send", IBV_WR_SEND, connected | ud, message},
                                    {"send-imm", IBV_WR_SEND_WITH_IMM, connected | ud, message},
                                    {"write", IBV_WR_RDMA_WRITE, connected, IBV_SEND_INLINE},
                                    {"write-imm", IBV_WR_RDMA_WRITE_WITH_IMM, connected, message},
                                    {"read", IBV_WR_RDMA_READ, reliable, 0},
                                    {"cmp-swp", IBV_WR_ATOMIC_CMP_AND_SWP, reliable, 0},
                                    {"fetch-add", IBV_WR_ATOMIC_FETCH_AND_ADD, reliable, 0},
                                    {"local-inv", IBV_WR_LOCAL_INV, connected, 0, true},
                                    {"bind-mw", IBV_WR_BIND_MW, connected, 0, true},
                                    {"send-inv", IBV_WR_SEND_WITH_INV, connected, message, true},
                                    {"tso", IBV_WR_TSO, ud, 0}};

constexpr unsigned all_flags = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;

std::string text(const Operation& operation, unsigned flags) {
  return std::string(operation.key) + " with flags " + std::to_string(flags);
}

class ProductTest : public PairTest {
 public:
  explicit ProductTest(const Type& type) : type_(type) {}

 protected:
  static constexpr uint64_t request_id = 7, marker_id = 8;

  bool is_claimed(const Operation& operation) {
    if (is_atomic(operation.opcode)) return device().attributes().atomic_cap != IBV_ATOMIC_NONE;
    constexpr unsigned windows = IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    if (operation.is_of_window) return (device().attributes().device_cap_flags & windows) != 0;
    const ibv_tso_caps& tso = device().extended().tso_caps;
    return operation.opcode != IBV_WR_TSO || (tso.max_tso > 0 && (tso.supported_qpts >> type_.type & 1) != 0);
  }

  // Can a QP with inline data be created? Asked once.
  bool has_inline() {
    if (!has_inline_) {
      try {
        const Pd pd = make_pd(device());
        const Cq cq = make_cq(device());
        ibv_qp_cap made = {};
        make_qp(pd, cq, cq, {.inline_data = 8}, Where::current(), &made);
        has_inline_ = made.max_inline_data >= 8;
      } catch (const NotClaimed&) {
        has_inline_ = false;
      }
    }
    return *has_inline_;
  }
  std::vector<unsigned> sets_of_flags() {
    std::vector<unsigned> out;
    for (unsigned flags = 0; flags <= all_flags; ++flags)
      if ((flags & ~all_flags) == 0 && ((flags & IBV_SEND_INLINE) == 0 || has_inline())) out.push_back(flags);
    return out;
  }

  // Fresh ends, the near one in `state`.
  void make(ibv_qp_state state, uint8_t timeout = wire::Connect().timeout) {
    windows_.clear();
    PairSpec spec;
    spec.both.type = type_.type;
    spec.both.inline_data = has_inline() ? 8 : 0;
    if (is_claimed(operations[8])) spec.both.access |= IBV_ACCESS_MW_BIND;
    spec.is_connected = false;
    new_pair(spec);
    wire::Connect path;
    path.state = state;
    path.timeout = timeout;
    if (near().connect(far().facts(), path) != 0 || far().connect(near().facts()) != 0)
      throw Deviation{"to connect the ends", Where::current()};
  }

  // Result of ibv_post_send. `rkey`: of the window that the opcode is about.
  int post(const Operation& operation, unsigned flags, uint64_t id = request_id, uint32_t rkey = 0) {
    const ibv_wr_opcode opcode = operation.opcode;
    if (opcode == IBV_WR_LOCAL_INV || opcode == IBV_WR_BIND_MW || opcode == IBV_WR_TSO) {
      End& end = pair().native().end;
      ibv_sge element = end.sge(0, 8);
      ibv_send_wr wr = end.request(opcode, opcode == IBV_WR_TSO ? &element : nullptr, id);
      wr.send_flags = flags;
      uint8_t header[8] = {};
      if (opcode == IBV_WR_TSO) wr.tso = {header, sizeof header, 8};
      if (opcode == IBV_WR_LOCAL_INV) wr.invalidate_rkey = rkey;
      if (opcode == IBV_WR_BIND_MW) {
        ibv_mw* const mw = window();
        wr.bind_mw = {mw, ibv_inc_rkey(mw->rkey), {end.mr, end.buffer.address(), 64, IBV_ACCESS_REMOTE_READ}};
        bound_ = wr.bind_mw.rkey;
      }
      return end.post(wr);
    }
    SendRequest request = type_.type == IBV_QPT_UD
                              ? send_request({{0, 8}}, id, opcode)
                              : remote_request(opcode, {{0, 8}}, far().facts(), 4096, id);
    request.flags = flags;
    if (opcode == IBV_WR_SEND_WITH_INV) request.rkey = rkey;
    return near().post(request);
  }
  ibv_mw* window() {
    if (windows_.size() > 4) windows_.erase(windows_.begin());
    windows_.push_back(make_mw(pair().native().end.pd, IBV_MW_TYPE_2));
    return windows_.back();
  }

  // A signaled request that a QP in RTS carries out: everything before its completion has finished.
  void post_marker() {
    const Operation& operation = type_.type == IBV_QPT_UD ? operations[0] : operations[2];
    if (takes_a_receive(operation.opcode)) {
      ASSERT_EQ(far().receive(0, 256, marker_id), 0);
    }
    ASSERT_EQ(post(operation, IBV_SEND_SIGNALED, marker_id), 0);
  }

  const Type& type_;
  std::vector<Mw> windows_;
  uint32_t bound_ = 0;  // the key of the window that was bound last

 private:
  std::optional<bool> has_inline_;
};

// One opcode in RTS, with every set of flags.
class OpcodeTest final : public ProductTest {
 public:
  OpcodeTest(const Type& type, const Operation& operation) : ProductTest(type), operation_(operation) {}

 private:
  void run() override {
    const bool is_supported = operation_.is_of(type_) && is_claimed(operation_);
    if (operation_.opcode == IBV_WR_TSO && is_supported) throw NotClaimed{"TSO is claimed"};
    if (operation_.is_of(type_) && !is_supported && operation_.opcode != IBV_WR_TSO)
      throw NotClaimed{"the device claims no " +
                       std::string(operation_.is_of_window ? "windows of type 2" : "atomics")};
    for (const unsigned flags : sets_of_flags()) {
      SCOPED_TRACE(text(operation_, flags));
      if (!is_ready_) make(IBV_QPS_RTS, may_be_unanswered() ? short_timeout : wire::Connect().timeout);
      is_ready_ = true;
      if (is_supported && is_atomic(operation_.opcode) && !pair().has_atomics())
        throw NotTested{"the far end has no atomics"};
      if (!is_supported)
        expect_not_carried_out(flags);
      else if ((flags & ~operation_.flags_on(type_)) == 0)
        expect_carried_out(flags);
      else
        expect_at_most_one(flags);
      if (HasFailure()) return;
    }
  }

  bool receives() const {
    return takes_a_receive(operation_.opcode) || operation_.opcode == IBV_WR_SEND_WITH_INV;
  }

  // No source says whether a remote peer can invalidate a window of another type of QP. A responder that
  // cannot may stay silent. The request then ends once its retries are used up: soon, with 4 ms between two.
  // However it ends, it does so once.
  static constexpr uint8_t short_timeout = 10;
  bool may_be_unanswered() const { return operation_.opcode == IBV_WR_SEND_WITH_INV && type_.bit != rc; }

  // The window that the request invalidates.
  static constexpr const char* no_window = "a window of type 2 is not bound, of which bind-mw tells";
  uint32_t key() {
    if (operation_.opcode == IBV_WR_SEND_WITH_INV) {
      const wire::Window window = far().bind_window(true, 8192, 64, IBV_ACCESS_REMOTE_READ);
      if (window.status != IBV_WC_SUCCESS) throw NotTested{no_window};
      return window.rkey;
    }
    if (operation_.opcode != IBV_WR_LOCAL_INV) return 0;
    if (post(operations[8], IBV_SEND_SIGNALED) != 0 || near().completion().status != IBV_WC_SUCCESS)
      throw NotTested{no_window};
    return bound_;
  }

  void expect_carried_out(unsigned flags) {
    const uint32_t rkey = key();
    if (receives()) {
      ASSERT_EQ(far().receive(0, 256), 0);
    }
    ASSERT_EQ(post(operation_, flags, request_id, rkey), 0);
    if (may_be_unanswered()) {
      finish(flags);
      return;
    }
    if ((flags & IBV_SEND_SIGNALED) == 0) post_marker();
    const Completion done = near().completion();
    EXPECT_EQ(done.status, IBV_WC_SUCCESS) << completion_text(done);
    EXPECT_EQ(done.id, (flags & IBV_SEND_SIGNALED) != 0 ? request_id : marker_id);
    if (!receives()) return;
    const Completion received = far().received();
    EXPECT_EQ(received.status, IBV_WC_SUCCESS) << completion_text(received);
    if (type_.type == IBV_QPT_UD && (flags & IBV_SEND_SIGNALED) == 0) far().received();  // the marker's
  }

  // A set of flags that the opcode does not have: refused, or accepted once.
  void expect_at_most_one(unsigned flags) {
    const uint32_t rkey = key();
    if (receives()) {
      ASSERT_EQ(far().receive(0, 256), 0);
    }
    const int error = post(operation_, flags, request_id, rkey);
    is_ready_ = error != 0 && !receives();
    if (error == 0) finish(flags);
  }

  void expect_not_carried_out(unsigned flags) {
    if (post(operation_, flags) != 0) return;
    if ((flags & IBV_SEND_SIGNALED) != 0) {
      EXPECT_NE(near().completion().status, IBV_WC_SUCCESS);
    }
    EXPECT_TRUE(far().untouched(0, 8192));
    is_ready_ = false;
  }

  // Waits for the completion if there must be one, then checks that there is no other.
  void finish(unsigned flags) {
    is_ready_ = false;
    if ((flags & IBV_SEND_SIGNALED) != 0) {
      EXPECT_EQ(near().completion().id, request_id);
    }
    ASSERT_EQ(near().to_state(IBV_QPS_ERR), 0);
    const bool has_marker = post(type_.type == IBV_QPT_UD ? operations[0] : operations[2], IBV_SEND_SIGNALED,
                                 marker_id) == 0;  // some devices take nothing in ERR
    // A device that takes the marker and never completes it: in-err tells.
    const std::chrono::milliseconds time(has_marker ? 5000 : 20);
    uint32_t others = 0;
    for (;;) {
      const std::vector<Completion> list = near().poll(1, scaled(time));
      if (list.empty() || (has_marker && list.front().id == marker_id)) break;
      ++others;
    }
    EXPECT_LE(others, (flags & IBV_SEND_SIGNALED) != 0 ? 0u : 1u);
  }

  const Operation& operation_;
  bool is_ready_ = false;
};

// One state, with every opcode and every set of flags.
class StateTest : public ProductTest {
 public:
  StateTest(const Type& type, ibv_qp_state state) : ProductTest(type), state_(state) {}

 protected:
  template <typename Body>
  void each(Body body) {
    for (const Operation& operation : operations)
      for (const unsigned flags : sets_of_flags()) {
        if (operation.opcode == IBV_WR_BIND_MW && !has_windows()) continue;
        SCOPED_TRACE(text(operation, flags));
        body(operation, flags);
        if (HasFailure()) return;
      }
  }
  const ibv_qp_state state_;

 private:
  // Claimed, and not broken: another clause is told of windows that cannot be made.
  bool has_windows() {
    try {
      need_family("family.mw2");
    } catch (const NotTested&) {
      return false;
    }
    return is_claimed(operations[8]);
  }
};

class RefusedTest final : public StateTest {
  using StateTest::StateTest;
  void run() override {
    make(state_);
    need_refusals();
    each([&](const Operation& operation, unsigned flags) {
      EXPECT_NE(post(operation, flags), 0) << text(operation, flags);
    });
    EXPECT_TRUE(near().stays_empty());
    EXPECT_EQ(near().state(), state_);
  }
  // A device that looks at no state takes every opcode on every type of QP: one deviation, of which
  // ibv_post_send.state-... tells.
  void need_refusals() {
    const Pd pd = make_pd(device());
    const Cq cq = make_cq(device());
    Qp qp;
    try {
      qp = make_qp(pd, cq);
    } catch (const NotClaimed&) {  // no RC: then this type tells
      return;
    }
    bring_to(qp, state_, attributes_for(device(), {.destination = qp->qp_num}));
    ibv_send_wr wr = {}, *bad = nullptr;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    if (CALL(ibv_post_send(qp, &wr, &bad)) == 0)
      throw NotTested{std::string("an RC QP takes a SEND in ") + state_name(state_) +
                      ": the clauses ibv_post_send.state-... tell of it"};
  }
};

// In ERR, and in SQE.
class FlushedTest final : public StateTest {
  using StateTest::StateTest;
  void run() override {
    make(state_ == IBV_QPS_SQE ? IBV_QPS_RTS : state_);
    if (state_ == IBV_QPS_SQE) fail_a_request();
    uint64_t id = 100;
    each([&](const Operation& operation, unsigned flags) {
      if (post(operation, flags, ++id) != 0) return;
      const Completion flushed = near().completion();
      EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR) << completion_text(flushed);
      EXPECT_EQ(flushed.id, id);
    });
    EXPECT_TRUE(near().stays_empty());
    EXPECT_EQ(near().state(), state_);
  }
  // By a key that no region has.
  void fail_a_request() {
    SendRequest request = send_request({{0, 8, 0x5a5a5a5a}});
    if (near().post(request) != 0) throw NotTested{"the request is refused when it is posted"};
    if (near().completion().status == IBV_WC_SUCCESS)
      throw NotTested{"the request with a wrong lkey succeeded: error.unreliable.requester"};
    if (near().state() != IBV_QPS_SQE) throw NotTested{"the device went to ERR, not to SQE"};
  }
};

class HeldTest final : public StateTest {
  using StateTest::StateTest;
  void run() override {
    make(state_);
    uint32_t count = 0;
    for (const Operation& operation : operations) {
      if (!operation.is_of(type_) || !is_claimed(operation) || operation.is_of_window) continue;
      if (is_atomic(operation.opcode) && !pair().has_atomics()) continue;
      if (takes_a_receive(operation.opcode)) {
        ASSERT_EQ(far().receive(0, 256), 0);
      }
      ASSERT_EQ(post(operation, IBV_SEND_SIGNALED, ++count), 0) << operation.key;
    }
    EXPECT_TRUE(near().stays_empty());
    ASSERT_EQ(near().to_state(IBV_QPS_RTS), 0);
    for (uint32_t id = 1; id <= count; ++id) {
      const Completion done = near().completion();
      EXPECT_EQ(done.status, IBV_WC_SUCCESS) << completion_text(done);
      EXPECT_EQ(done.id, id);
    }
  }
};

template <typename Test, typename What>
void add(const Type& type, const std::string& what, const What& argument) {
  register_generated("post_table", test_name(type.key + ('-' + what)),
                     {std::string("ibv_post_send.table.") + type.key + '.' + what}, Traits().limit(20),
                     __FILE__, __LINE__, [&type, argument]() -> testing::Test* {
                       if constexpr (std::is_pointer_v<What>)
                         return new Test(type, *argument);
                       else
                         return new Test(type, argument);
                     });
}

[[maybe_unused]] const bool generated = [] {
  for (const Type& type : types) {
    for (const Operation& operation : operations) {
      const bool is_listed = operation.is_of(type) && operation.opcode != IBV_WR_TSO;
      add<OpcodeTest>(type, (is_listed ? "" : "no-") + std::string(operation.key), &operation);
    }
    add<RefusedTest>(type, "in-reset", IBV_QPS_RESET);
    add<RefusedTest>(type, "in-init", IBV_QPS_INIT);
    add<RefusedTest>(type, "in-rtr", IBV_QPS_RTR);
    add<HeldTest>(type, "in-sqd", IBV_QPS_SQD);
    if ((type.bit & (uc | ud)) != 0) add<FlushedTest>(type, "in-sqe", IBV_QPS_SQE);
    add<FlushedTest>(type, "in-err", IBV_QPS_ERR);
  }
  return true;
}();

}  // namespace
}  // namespace conformance::post_table_chapter
