// SPDX-License-Identifier: BSD-2-Clause
//
// Posting requests (ibv_post_send(3)): what is refused at once, what is carried out within the call, what is
// kept.
#include <errno.h>

#include <algorithm>
#include <cstring>

#include "emulator.h"
#include "engine/completion/send_completion.h"
#include "engine/completion/streaming.h"
#include "engine/datagram/datagram.h"
#include "engine/local/small_rdma.h"
#include "engine/local/small_send.h"
#include "engine/post/post_send.h"
#include "engine/qp_state/error_flow.h"
#include "engine/requester/local_requests.h"
#include "engine/requester/requester.h"
#include "engine/requester/send_limits.h"
#include "engine/rules/program_enum.h"
#include "fabric/hazards.h"
#include "observe/log.h"
#include "observe/observer.h"

namespace verbena {

namespace {

// The request as the engine keeps it; `number` is its running number.
SendRequest read_request(const Qp& qp, const ibv_send_wr& wr, uint64_t number) {
  SendRequest request{};
  request.wr_id = wr.wr_id;
  request.number = number;
  request.opcode = wr.opcode;
  request.flags = wr.send_flags;
  request.immediate = wr.imm_data;
  request.sges = wr.sg_list;
  request.sge_count = static_cast<uint32_t>(wr.num_sge);
  request.length = static_cast<uint32_t>(std::min<uint64_t>(message_length(wr), UINT32_MAX));
  request.is_inline = (wr.send_flags & IBV_SEND_INLINE) != 0;
  if (qp.type == IBV_QPT_XRC_SEND) request.remote_srqn = wr.qp_type.xrc.remote_srqn;
  if (qp.datagrams) {
    const ibv_ah* ah = wr.wr.ud.ah;
    request.ah = ah != nullptr ? reinterpret_cast<const AhOfProgram*>(ah)->emulated : nullptr;
    request.remote_qpn = wr.wr.ud.remote_qpn;
    request.remote_qkey = wr.wr.ud.remote_qkey;
  } else if (wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    request.remote_address = wr.wr.atomic.remote_addr;
    request.rkey = wr.wr.atomic.rkey;
    request.compare_add = wr.wr.atomic.compare_add;
    request.swap = wr.wr.atomic.swap;
  } else if (wr.opcode != IBV_WR_SEND && wr.opcode != IBV_WR_SEND_WITH_IMM) {
    request.remote_address = wr.wr.rdma.remote_addr;
    request.rkey = wr.wr.rdma.rkey;
  }
  read_memory_wr(wr, &request);
  return request;
}

// Keeps a request that cannot be carried out within the call.
void keep(Qp& qp, const SendRequest& request) {
  const uint64_t place = request.number & (qp.sq.size() - 1);
  SendRequest& kept = qp.sq[place];
  kept = request;
  if (request.is_inline) {
    std::byte* copy = qp.sq_inline.data() + place * qp.sq_inline_stride;
    ibv_sge& sge = qp.sq_sges[place * qp.cap.max_send_sge];
    sge = {reinterpret_cast<uint64_t>(copy), request.length, 0};
    for (uint32_t i = 0; i < request.sge_count; ++i) {
      std::memcpy(copy, reinterpret_cast<const void*>(request.sges[i].addr), request.sges[i].length);
      copy += request.sges[i].length;
    }
    kept.sges = &sge;
    kept.sge_count = request.length != 0 ? 1 : 0;
  } else {
    ibv_sge* copy = qp.sq_sges.data() + place * qp.cap.max_send_sge;
    std::copy_n(request.sges, request.sge_count, copy);
    kept.sges = copy;
  }
  if (qp.datagrams) keep_address(qp, kept);
}

[[gnu::noinline]] int post_in_general(Qp& qp, const ibv_send_wr& wr, ibv_qp_state state, bool idle) {
  qp.transport->expect_request(qp, qp.sq_posted);
  const char* why = nullptr;
  if (int error = check_send_wr(send_limits(qp), qp.type, wr, &why); error != 0) {
    VERBENA_WARN("ibv_post_send: QP 0x%06x, wr_id 0x%llx: opcode %u, %d SGEs, flags 0x%x: %s", qp.shared->qpn,
                 static_cast<unsigned long long>(wr.wr_id), number_in(wr.opcode), wr.num_sge, wr.send_flags,
                 why);
    return error;
  }
  if (qp.sq_posted - qp.sq_freed.load(std::memory_order_acquire) >= qp.sq_size) {
    VERBENA_WARN(
        "ibv_post_send: QP 0x%06x: send queue full: %llu posted, %llu freed by polled completions, room for "
        "%llu",
        qp.shared->qpn, static_cast<unsigned long long>(qp.sq_posted),
        static_cast<unsigned long long>(qp.sq_freed.load()), static_cast<unsigned long long>(qp.sq_size));
    return ENOMEM;
  }
  SendRequest request = read_request(qp, wr, qp.sq_posted);
  ++qp.sq_posted;
  qp.shared->sq_posted.store(qp.sq_posted, std::memory_order_relaxed);
  if (state == IBV_QPS_ERR || state == IBV_QPS_SQE) {
    flush_send(qp, request);
    qp.sq_next = qp.sq_posted;
    return 0;
  }
  const bool alone = idle && state == IBV_QPS_RTS && qp.transport->is_synchronous();
  if (alone && start_alone(qp, request) != Step::kWaits) return 0;
  keep(qp, request);
  if (state == IBV_QPS_RTS) start_kept(qp);
  return 0;
}

int post_one(Qp& qp, const ibv_send_wr& wr, HazardGuard& guard) {
  const ibv_qp_state state = qp.state.load(std::memory_order_relaxed);
  if (state != IBV_QPS_RTS && usable(*qp.context) != 0) return EIO;
  if (state != IBV_QPS_RTS && state != IBV_QPS_SQD && state != IBV_QPS_SQE && state != IBV_QPS_ERR) {
    VERBENA_WARN("ibv_post_send: QP 0x%06x is in state %d: requests are taken from RTS on", qp.shared->qpn,
                 state);
    return EINVAL;
  }
  const bool idle = qp.sq_next == qp.sq_posted;
  // An observer sees each request and response: they take the slow path.
  if (idle && state == IBV_QPS_RTS && observer() == nullptr &&
      (send_small(qp, wr, guard) || carry_out_small_rdma(qp, wr, guard)))
    return 0;
  guard.end();
  return post_in_general(qp, wr, state, idle);
}

}  // namespace

int post_list(Qp& qp, ibv_send_wr* wr, ibv_send_wr** bad_wr, HazardGuard& guard) {
  for (; wr != nullptr; wr = wr->next) {
    const int error = post_one(qp, *wr, guard);
    if (error == 0) continue;
    *bad_wr = wr;
    return error;
  }
  return 0;
}

int post_send(Qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  if (qp->process->dead()) {
    *bad_wr = wr;
    return EIO;
  }
  act_on_pending_flags(*qp);
  received_in_a_row = 0;
  // Said before the lock is taken, which is a full fence all the same. Not while waiting for it: its holder
  // may be waiting for hazard guards on end.
  HazardGuard guard;
  const uint32_t target = qp->expected_target.load(std::memory_order_relaxed);
  if (target != UINT32_MAX)
    guard.announce(qp->process->directory(), qp->process->membership().slot(), target);
  if (qp->send_lock.try_lock()) [[likely]] {
    HazardGuard::confirm_after_locking();
  } else {
    guard.end();
    qp->send_lock.lock();
  }
  const int error = post_list(*qp, wr, bad_wr, guard);
  qp->send_lock.unlock();
  return error;
}

}  // namespace verbena
