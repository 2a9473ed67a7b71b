// SPDX-License-Identifier: BSD-2-Clause
//
// Posting requests (ibv_post_send(3)): what is refused at once, what is carried out within the call, what is
// kept.
#include <errno.h>

#include <algorithm>
#include <cstring>

#include "engine/completion/streaming.h"
#include "engine/datagram/datagram.h"
#include "engine/program_enum.h"
#include "engine/queue_pair/error_flow.h"
#include "engine/remote/remote_path.h"
#include "engine/requester/requester.h"
#include "engine/requester/small_rdma.h"
#include "engine/requester/small_send.h"
#include "engine/responder/memory_requests.h"
#include "fabric/hazards.h"
#include "observe/log.h"
#include "observe/mutant.h"

namespace verbena {

SendLimits send_limits(const Qp& qp) {
  SendLimits limits;
  limits.max_sge = qp.cap.max_send_sge;
  limits.max_sge_read = static_cast<uint32_t>(qp.context->device->limits.max_sge_rd);
  limits.max_inline = qp.cap.max_inline_data;
  limits.max_message = static_cast<uint32_t>(qp.context->device->limits.max_msg_sz);
  return limits;
}

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
    return mutated("post-full-dropped") ? 0 : ENOMEM;
  }
  if (mutated("life-last-place") && qp.sq_posted - qp.sq_freed.load() + 1 >= qp.sq_size && qp.sq_size > 1024)
    return ENOMEM;
  if (mutated("post-inline-immediate-refused") && (wr.send_flags & IBV_SEND_INLINE) != 0 &&
      number_in(wr.opcode) == IBV_WR_RDMA_WRITE_WITH_IMM)
    return EINVAL;
  if (mutated("post-drained-refused") && state == IBV_QPS_SQD && qp.type == IBV_QPT_UC) return EINVAL;
  SendRequest request = read_request(qp, wr, qp.sq_posted);
  ++qp.sq_posted;
  qp.shared->sq_posted.store(qp.sq_posted, std::memory_order_relaxed);
  if (state == IBV_QPS_ERR || state == IBV_QPS_SQE) {
    const bool is_silent = mutated("post-flush-silent") && (wr.send_flags & IBV_SEND_SIGNALED) == 0;
    if (!mutated("post-send-in-error-lost") && !is_silent) complete_send(qp, request, VendorError::flushed);
    qp.sq_next = qp.sq_posted;
    return 0;
  }
  if (qp.path.remote) {
    keep(qp, request);
    if (state == IBV_QPS_RTS) post_remote(qp);
    return 0;
  }
  if (idle && (state == IBV_QPS_RTS || (state == IBV_QPS_SQD && mutated("drained-sends")))) {
    if (carry_out(qp, request) != Step::kWaits) return 0;
  }
  keep(qp, request);
  if (state == IBV_QPS_RTS) qp.process->add_pending(&qp);
  return 0;
}

int post_one(Qp& qp, const ibv_send_wr& wr, HazardGuard& guard) {
  const ibv_qp_state state = qp.state.load(std::memory_order_relaxed);
  if (state != IBV_QPS_RTS && usable(*qp.context) != 0) return EIO;
  if (state == IBV_QPS_INIT && mutated("post-send-in-init")) return 0;
  if (state == IBV_QPS_RESET && mutated("post-send-in-reset")) return 0;
  if (state == IBV_QPS_RTR && qp.type == IBV_QPT_UD && mutated("post-send-in-rtr")) return 0;
  if (state != IBV_QPS_RTS && state != IBV_QPS_SQD && state != IBV_QPS_SQE && state != IBV_QPS_ERR) {
    VERBENA_WARN("ibv_post_send: QP 0x%06x is in state %d: requests are taken from RTS on", qp.shared->qpn,
                 state);
    return EINVAL;
  }
  if (mutated("post-fence-refused") && (wr.send_flags & IBV_SEND_FENCE) != 0 &&
      number_in(wr.opcode) == IBV_WR_SEND)
    return EINVAL;
  const bool idle = qp.sq_next == qp.sq_posted;
  if (idle && state == IBV_QPS_RTS && (send_small(qp, wr, guard) || carry_out_small_rdma(qp, wr, guard)))
    return 0;
  guard.end();
  return post_in_general(qp, wr, state, idle);
}

}  // namespace

int post_list(Qp& qp, ibv_send_wr* wr, ibv_send_wr** bad_wr, HazardGuard& guard) {
  if (qp.path.remote) expect_request(qp, qp.sq_posted);
  for (; wr != nullptr; wr = wr->next) {
    const int error = post_one(qp, *wr, guard);
    if (error == 0) continue;
    if (mutated("post-goes-on")) {
      *bad_wr = wr;
      ibv_send_wr* other = nullptr;
      if (wr->next != nullptr) post_list(qp, wr->next, &other, guard);
      return error;
    }
    *bad_wr = mutated("post-bad-wr-next") && wr->next != nullptr ? wr->next : wr;
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
