// SPDX-License-Identifier: BSD-2-Clause
//
// A queue pair whose transport obeys a script (scripted_transport.h). Nothing happens by itself: the scene
// holds send_lock all the time, so that the service thread and polls pass the queue pair by. Time passes when
// the test says so. A request's wr_id is its running number.
#pragma once

#include <memory>
#include <ostream>
#include <vector>

#include "engine/objects/process.h"
#include "engine/post/post_send.h"
#include "unit/engine/requester/scripted_transport.h"
#include "unit/engine/scene.h"

namespace verbena {

using WrIds = std::vector<uint64_t>;

// A completion of the send queue.
struct EndedRequest {
  uint64_t wr_id;
  VendorError error = VendorError::none;
  ibv_wc_status status = status_of(error);

  bool operator==(const EndedRequest&) const = default;

  // vendor_error.h: the high digit of vendor_err stands for the status.
  static ibv_wc_status status_of(VendorError error) {
    constexpr ibv_wc_status kByHighDigit[] = {
        IBV_WC_SUCCESS,           IBV_WC_LOC_LEN_ERR,    IBV_WC_LOC_QP_OP_ERR, IBV_WC_LOC_PROT_ERR,
        IBV_WC_WR_FLUSH_ERR,      IBV_WC_MW_BIND_ERR,    IBV_WC_BAD_RESP_ERR,  IBV_WC_LOC_ACCESS_ERR,
        IBV_WC_REM_INV_REQ_ERR,   IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_OP_ERR,    IBV_WC_RETRY_EXC_ERR,
        IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_GENERAL_ERR,    IBV_WC_GENERAL_ERR,   IBV_WC_FATAL_ERR};
    return kByHighDigit[static_cast<uint32_t>(error) >> 4 & 15];
  }
  static EndedRequest flushed(uint64_t wr_id) { return {wr_id, VendorError::flushed}; }
  friend void PrintTo(const EndedRequest& ended, std::ostream* out) {
    *out << "wr_id " << ended.wr_id << ": status " << ended.status << ", vendor_err 0x" << std::hex
         << static_cast<uint32_t>(ended.error) << std::dec;
  }
};
using EndedRequests = std::vector<EndedRequest>;

struct ScriptedHow {
  ibv_qp_type type = IBV_QPT_RC;
  bool is_synchronous = false;
};

// Calls `call`, which sets `instant` to `duration` from then on.
template <typename Call>
void expect_instant(const int64_t& instant, uint64_t duration, const Call& call) {
  const int64_t before = now_ns();
  call();
  EXPECT_GE(instant, before + static_cast<int64_t>(duration));
  EXPECT_LE(instant, now_ns() + static_cast<int64_t>(duration));
}

class ScriptedRequester : public Scene {
 public:
  static constexpr uint8_t kTimeout = 14;  // 67 ms
  static QpSetup usual() {
    QpSetup setup;
    setup.timeout = kTimeout;
    return setup;
  }

  explicit ScriptedRequester(const QpSetup& setup = usual(), ScriptedHow wanted = {}) : how(wanted) {
    ibv_qp_init_attr init{};
    init.cap = {setup.send_wr, setup.recv_wr, setup.sge, setup.sge, setup.inline_size};
    init.qp_type = wanted.type;
    init.sq_sig_all = setup.all_signaled;
    Qp* made = nullptr;
    EXPECT_EQ(create_qp(pd.get(), &init, send_cq.get(), recv_cq.get(), 0xa, &made), 0);
    owned_.reset(made);
    connect_to_script(setup);
    made->send_lock.lock();
  }
  ~ScriptedRequester() { leave(); }
  ScriptedRequester(const ScriptedRequester&) = delete;
  ScriptedRequester& operator=(const ScriptedRequester&) = delete;

  Qp& qp() { return *owned_; }
  ibv_qp_state state() { return qp().state.load(std::memory_order_relaxed); }

  // ---- what the program does ----------------------------------------------------------------------------

  int post(ibv_wr_opcode opcode, unsigned flags = IBV_SEND_SIGNALED, uint32_t length = 8) {
    ibv_sge sge = memory.sge(0, length);
    ibv_send_wr wr{};
    wr.wr_id = qp().sq_posted;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.send_flags = flags;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
      wr.wr.atomic = {memory.address(64), 1, 1, memory.rkey()};
    else
      wr.wr.rdma = {memory.address(64), memory.rkey()};
    ibv_send_wr* bad = nullptr;
    HazardGuard guard;
    const int error = post_list(qp(), &wr, &bad, guard);
    transport.deliver(qp());
    return error;
  }
  int send(unsigned flags = IBV_SEND_SIGNALED) { return post(IBV_WR_SEND, flags); }
  int write(unsigned flags = IBV_SEND_SIGNALED, uint32_t length = 8) {
    return post(IBV_WR_RDMA_WRITE, flags, length);
  }
  int read(unsigned flags = IBV_SEND_SIGNALED) { return post(IBV_WR_RDMA_READ, flags); }
  int invalidate() { return post(IBV_WR_LOCAL_INV); }  // of a window that is not there: fails

  // All completions that there are.
  EndedRequests ended() {
    EndedRequests all;
    ibv_wc wc{};
    while (poll_cq(send_cq.get(), 1, &wc) == 1) {
      EXPECT_EQ(wc.qp_num, qp_number(&qp()));
      all.push_back({wc.wr_id, static_cast<VendorError>(wc.vendor_err), wc.status});
    }
    return all;
  }
  // The same if all of them are successful.
  WrIds succeeded() {
    WrIds ids;
    for (const EndedRequest& each : ended()) {
      EXPECT_EQ(each, EndedRequest{each.wr_id});
      ids.push_back(each.wr_id);
    }
    return ids;
  }

  int modify(ibv_qp_state state, bool with_event = false) {
    ibv_qp_attr attr{};
    attr.qp_state = state;
    attr.en_sqd_async_notify = with_event;
    int error = 0;
    unlocked([&] {
      error = modify_qp(&qp(), &attr, IBV_QP_STATE | (state == IBV_QPS_SQD ? IBV_QP_EN_SQD_ASYNC_NOTIFY : 0));
    });
    transport.deliver(qp());
    return error;
  }
  int drain(bool with_event = true) { return modify(IBV_QPS_SQD, with_event); }
  // RESET, and up to RTS again: nothing of the script goes on.
  void begin_again(const QpSetup& setup) {
    unlocked([&] {
      EXPECT_EQ(to_state(&qp(), IBV_QPS_RESET), 0);
      transport.forget();
      connect_to_script(setup);
    });
  }
  bool is_draining() {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    unlocked([&] { EXPECT_EQ(query_qp(&qp(), &attr, &init), 0); });
    return attr.sq_draining != 0;
  }
  // SQ_DRAINED events since the last call.
  int drained_events() {
    int count = 0;
    for (AsyncEvent event; (event = async_event(context.get(), 0)).type != UINT32_MAX;) {
      EXPECT_EQ(event.type, uint32_t{IBV_EVENT_SQ_DRAINED});
      ++count;
    }
    return count;
  }

  // ---- what the responder does --------------------------------------------------------------------------

  void report(uint64_t number, const ScriptedReply& reply) {
    ScriptedTransport::report(qp(), number, reply);
    transport.deliver(qp());
  }
  void ack(uint64_t number) { report(number, ScriptedReply::ack()); }
  void respond(uint64_t number) { report(number, ScriptedReply::response()); }
  void nak(uint64_t number, VendorError error) { report(number, ScriptedReply::nak(error)); }
  void rnr(uint64_t number, uint8_t timer = 1) { report(number, ScriptedReply::rnr(timer)); }

  // ---- what the scheduler and the service thread do -----------------------------------------------------

  // Is the queue pair left to the scheduler?
  bool is_scheduled() { return qp().listed; }
  // As Scheduler::progress_all, and Remote when its path changes: the time at which to come again.
  int64_t drive(bool from_service = false) {
    const int64_t again = progress_send_queue(qp(), from_service);
    if (qp().sq_next == qp().sq_posted || again == kEndOfTime)
      take_off_the_list();
    else
      qp().process->scheduler().add(&qp());
    transport.deliver(qp());
    return again;
  }
  int64_t check_at(int64_t now) { return check_deadline(qp(), now); }
  // The last instant at which nothing fails yet has gone by, if there is a deadline.
  void expire() {
    if (qp().give_up_at != kEndOfTime) check_at(qp().give_up_at + transport.grace);
  }
  // `ns` pass: what is due then is due so much sooner.
  void pass(int64_t ns) {
    if (qp().try_again_at != 0) qp().try_again_at -= ns;
    if (qp().give_up_at != kEndOfTime) qp().give_up_at -= ns;
  }
  // No retry becomes due by itself: it is an hour away.
  void hold_retries() {
    if (qp().try_again_at != 0) pass(qp().try_again_at - now_ns() - 3'600'000'000'000);
  }
  // The next retry becomes due, and is made.
  void retry() {
    if (qp().try_again_at != 0) pass(qp().try_again_at - now_ns());
    drive();
  }

  const ScriptedHow how;
  ScriptedTransport transport{how.is_synchronous};
  Owned<Cq> send_cq = make_cq(context.get(), 512), recv_cq = make_cq(context.get(), 512);
  Region memory{pd.get(), 65536};

 private:
  void take_off_the_list() {
    qp().process->scheduler().remove(&qp());
    qp().listed = false;
  }
  // Without send_lock, and off the scheduler's list: the service thread does not find the queue pair.
  template <typename Call>
  void unlocked(const Call& call) {
    const bool was_listed = qp().listed;
    qp().process->scheduler().remove(&qp());
    qp().send_lock.unlock();
    call();
    qp().send_lock.lock();
    qp().listed = false;
    if (was_listed && qp().sq_next != qp().sq_posted) qp().process->scheduler().add(&qp());
  }
  void leave() {
    qp().process->scheduler().remove(&qp());
    qp().send_lock.unlock();
  }
  // To a queue pair that nobody has. The caller does not hold send_lock.
  void connect_to_script(const QpSetup& setup) {
    Qp* const made = owned_.get();
    const uint32_t nobody = (qp_number(made) + 5) & 0xffffff;
    const bool reliable = how.type == IBV_QPT_RC;
    QpSetup access = setup;
    if (!reliable) access.access = IBV_ACCESS_REMOTE_WRITE;
    EXPECT_EQ(to_init(made, access), 0);
    if (reliable) {
      EXPECT_EQ(to_rtr(made, nobody, gid(), setup), 0);
      EXPECT_EQ(to_rts(made, setup), 0);
    } else {
      ibv_qp_attr attr{};
      attr.qp_state = IBV_QPS_RTR;
      attr.path_mtu = IBV_MTU_1024;
      attr.dest_qp_num = nobody;
      attr.ah_attr.is_global = 1;
      attr.ah_attr.port_num = 1;
      std::memcpy(attr.ah_attr.grh.dgid.raw, gid().raw.data(), 16);
      constexpr int kRtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
      EXPECT_EQ(modify_qp(made, &attr, kRtr), 0);
      attr.qp_state = IBV_QPS_RTS;
      EXPECT_EQ(modify_qp(made, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
    }
    made->transport = &transport;
  }

  Owned<Qp> owned_;  // last: it goes before all that it uses
};

}  // namespace verbena
