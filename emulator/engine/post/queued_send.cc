// SPDX-License-Identifier: BSD-2-Clause
//
// What is refused at once, what is carried out within the call, what is kept.
#include "engine/post/queued_send.h"

#include <errno.h>

#include <algorithm>
#include <cstring>

#include "emulator.h"
#include "engine/completion/send_completion.h"
#include "engine/datagram/datagram.h"
#include "engine/objects/context.h"
#include "engine/objects/own_requests.h"
#include "engine/objects/qp.h"
#include "engine/objects/send_request.h"
#include "engine/objects/transport.h"
#include "engine/requester/local_requests.h"
#include "engine/requester/requester.h"
#include "engine/requester/send_limits.h"
#include "engine/rules/program_enum.h"
#include "engine/rules/qp_state_table.h"
#include "engine/rules/send_rules.h"
#include "keep_errno.h"
#include "observe/log.h"
#include "observe/observer.h"
#include "observe/probes.h"

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

}  // namespace

uint64_t places_in_use(const Qp& qp) {
  const uint64_t freed = qp.sq_freed.load(std::memory_order_acquire);
  const uint64_t own = qp.own_requests ? qp.own_requests->in_use(freed) : 0;
  return qp.sq_posted - freed - own;
}

void keep_request(Qp& qp, const SendRequest& request) {
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

[[gnu::noinline]] int post_to_queue(Qp& qp, const ibv_send_wr& wr) {
  const KeepErrno guard;
  const ibv_qp_state state = qp.state.load(std::memory_order_relaxed);
  if (state != IBV_QPS_RTS && usable(*qp.context) != 0) return EIO;
  if (state != IBV_QPS_RTS && state != IBV_QPS_SQD && state != IBV_QPS_SQE && state != IBV_QPS_ERR) {
    VERBENA_WARN(qp_not_rts, "ibv_post_send: QP 0x%06x is in %s: requests are taken from RTS on",
                 qp.shared->qpn, name_of_state(state));
    return EINVAL;
  }
  const bool idle = qp.sq_next == qp.sq_posted;
  qp.transport->expect_request(qp, qp.sq_posted);
  const char* why = nullptr;
  if (int error = check_send_wr(send_limits(qp), qp.type, wr, &why); error != 0) {
    VERBENA_WARN(send_request, "ibv_post_send: QP 0x%06x, wr_id 0x%llx: opcode %u, %d SGEs, flags 0x%x: %s",
                 qp.shared->qpn, static_cast<unsigned long long>(wr.wr_id), number_in(wr.opcode), wr.num_sge,
                 wr.send_flags, why);
    return error;
  }
  if (places_in_use(qp) >= qp.sq_size) {
    VERBENA_WARN(
        send_queue_full,
        "ibv_post_send: QP 0x%06x: send queue full: %llu posted, %llu freed by polled completions, room for "
        "%llu",
        qp.shared->qpn, static_cast<unsigned long long>(qp.sq_posted),
        static_cast<unsigned long long>(qp.sq_freed.load()), static_cast<unsigned long long>(qp.sq_size));
    return ENOMEM;
  }
  SendRequest request = read_request(qp, wr, qp.sq_posted);
  ++qp.sq_posted;
  qp.shared->sq_posted.store(qp.sq_posted, std::memory_order_relaxed);
  VERBENA_DEBUG("QP 0x%06x: request %llu, wr_id 0x%llx: %s of %u bytes is posted", qp.shared->qpn,
                static_cast<unsigned long long>(request.number),
                static_cast<unsigned long long>(request.wr_id), find_send_operation(request.opcode)->name,
                request.length);
  VERBENA_PROBE_POST_SEND(qp.shared->qpn, wr.wr_id, number_in(wr.opcode), wr.num_sge);
  if (Observer* const seen = observer(); seen != nullptr) [[unlikely]]
    seen->on_post({qp.shared->qpn, request.wr_id, request.length, static_cast<uint8_t>(number_in(wr.opcode))});
  if (state == IBV_QPS_ERR || state == IBV_QPS_SQE) {
    flush_send(qp, request);
    qp.sq_next = qp.sq_posted;
    return 0;
  }
  const bool alone = idle && state == IBV_QPS_RTS && qp.transport->is_synchronous();
  if (alone && start_alone(qp, request) != Step::kWaits) return 0;
  keep_request(qp, request);
  if (state == IBV_QPS_RTS) start_kept(qp);
  return 0;
}

}  // namespace verbena
