// SPDX-License-Identifier: BSD-2-Clause
//
// Posting receives (ibv_post_recv(3)).
#include <errno.h>

#include <algorithm>

#include "adapter/known_region.h"
#include "emulator.h"
#include "engine/datagram/datagram_queue.h"
#include "engine/objects/context.h"
#include "engine/objects/memory_objects.h"
#include "engine/objects/network.h"
#include "engine/objects/process.h"
#include "engine/objects/qp.h"
#include "engine/objects/requester_context.h"
#include "engine/objects/srq.h"
#include "engine/qp_state/error_flow.h"
#include "engine/qp_state/pending_flags.h"
#include "engine/rules/send_rules.h"
#include "keep_errno.h"
#include "observe/log.h"
#include "observe/observer.h"
#include "observe/probes.h"

namespace verbena {
namespace {

// Are all keys of the list valid now? Then requesters need not check them until some key becomes invalid.
bool keys_hold(const Qp& qp, const ibv_recv_wr& wr) {
  for (int i = 0; i < wr.num_sge; ++i) {
    const ibv_sge& sge = wr.sg_list[i];
    if (sge.length == 0) continue;
    const Translation place = translate(qp.process->view(), sge.lkey, false, qp.pd->handle,
                                        MemoryUse::local_scatter, sge.addr, sge.length);
    // Eager data is copied to the address that the program gave. So the key must translate to that address,
    // and the memory must be mapped.
    if (place.check != KeyCheck::kOk || place.address != sge.addr || place.on_demand) return false;
  }
  return true;
}

void put(Qp& qp, const ibv_recv_wr& wr, uint64_t number, uint32_t epoch, uint32_t length) {
  qp.rq_wr_ids[number & qp.receives.mask()] = wr.wr_id;
  qp.receives.publish(number, epoch, length);
  qp.rq_posted = number + 1;
  qp.shared->rq_posted.store(qp.rq_posted, std::memory_order_relaxed);
  VERBENA_PROBE_POST_RECV(qp.shared->qpn, wr.wr_id, wr.num_sge);
  if (Observer* const seen = observer(); seen != nullptr) [[unlikely]]
    seen->on_post({.qpn = qp.shared->qpn, .wr_id = wr.wr_id, .length = length, .is_receive = true});
  if (logs(LogLevel::kDebug)) [[unlikely]]
    log_line(LogLevel::kDebug, "QP 0x%06x: receive request %llu, wr_id 0x%llx: %u bytes, is posted",
             qp.shared->qpn, static_cast<unsigned long long>(number),
             static_cast<unsigned long long>(wr.wr_id), length);
}

// Posts an ordinary request: one SGE in a region that has been looked up before, in RTS, into a queue that is
// not full. False: it is not ordinary, and nothing is done.
bool post_ordinary(Qp& qp, const ibv_recv_wr& wr) {
  const uint64_t number = qp.rq_posted;
  if (qp.state.load(std::memory_order_acquire) != IBV_QPS_RTS || wr.num_sge != 1 || wr.sg_list == nullptr ||
      number - qp.rq_freed.load(std::memory_order_acquire) >= qp.cap.max_recv_wr)
    return false;
  const ibv_sge sge = wr.sg_list[0];
  const uint32_t epoch = qp.process->view().header().mr_epoch.load(std::memory_order_acquire);
  uint64_t address;
  if (sge.length == 0 || !qp.scattered.covers(epoch, sge.lkey, sge.addr, sge.length, &address) ||
      address != sge.addr)
    return false;
  ReceiveWqe& wqe = qp.receives.wqe(number);
  wqe.post_count(1);
  wqe.sge[0].post(sge.addr, sge.length, sge.lkey);
  put(qp, wr, number, epoch & 0xffffff, sge.length);
  return true;
}

int post_one(Qp& qp, const ibv_recv_wr& wr) {
  if (post_ordinary(qp, wr)) return 0;
  const ibv_qp_state state = qp.state.load(std::memory_order_acquire);
  if (state != IBV_QPS_RTS && usable(*qp.context) != 0) return EIO;
  if (state == IBV_QPS_RESET) {
    VERBENA_WARN(qp_in_reset, "ibv_post_recv: QP 0x%06x is in RESET: receives are taken from INIT on",
                 qp.shared->qpn);
    return EINVAL;
  }
  if (qp.receives.ready == nullptr) {
    VERBENA_WARN(no_receive_queue, "ibv_post_recv: QP 0x%06x has no receive queue of its own%s",
                 qp.shared->qpn, qp.srq != nullptr ? ": post to its SRQ" : "");
    return ENOMEM;  // as mlx5: a queue of size 0 is full
  }
  const char* why = nullptr;
  if (int error = check_recv_wr(qp.cap.max_recv_sge, wr, &why); error != 0) {
    VERBENA_WARN(receive_request, "ibv_post_recv: QP 0x%06x, wr_id 0x%llx, %d SGEs: %s", qp.shared->qpn,
                 static_cast<unsigned long long>(wr.wr_id), wr.num_sge, why);
    return error;
  }
  const uint64_t number = qp.rq_posted;
  if (number - qp.rq_freed.load(std::memory_order_acquire) >= qp.cap.max_recv_wr) {
    VERBENA_WARN(receive_queue_full, "ibv_post_recv: QP 0x%06x: receive queue full: room for %u",
                 qp.shared->qpn, qp.cap.max_recv_wr);
    return ENOMEM;
  }
  ReceiveWqe& wqe = qp.receives.wqe(number);
  wqe.post_count(static_cast<uint32_t>(wr.num_sge));
  uint64_t length = 0;
  for (int i = 0; i < wr.num_sge; ++i) {
    wqe.sge[i].post(wr.sg_list[i].addr, wr.sg_list[i].length, wr.sg_list[i].lkey);
    length += wr.sg_list[i].length;
  }
  // The epoch is read before the keys: if a key becomes invalid in between, the WQE counts as unchecked.
  const uint32_t epoch = qp.process->view().header().mr_epoch.load(std::memory_order_acquire) & 0xffffff;
  const bool hold = keys_hold(qp, wr);
  if (hold && wr.num_sge == 1)
    qp.scattered.remember(qp.process->view(), wr.sg_list[0].lkey, qp.pd->handle, MemoryUse::local_scatter);
  put(qp, wr, number, hold ? epoch : ReadyWord::kNeverValid,
      static_cast<uint32_t>(std::min<uint64_t>(length, UINT32_MAX)));
  if (state == IBV_QPS_ERR) flush_one_receive(qp, number);
  return 0;
}

// Wakes the requester if it has asked to be woken when a receive WQE is posted.
void wake_requester(Qp& qp) {
  const KeepErrno guard;
  if (qp.shared->requester_waits.exchange(0, std::memory_order_acq_rel) == 0) return;
  qp.send_lock.lock();
  const std::shared_ptr<PeerAdapter> requester = qp.requester.path.adapter;
  qp.send_lock.unlock();
  if (requester) requester->kick();
  if (Network* const network = qp.process->network(); network != nullptr) network->receive_posted();
}

}  // namespace

int post_recv(Qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  if (qp->process->dead()) {
    *bad_wr = wr;
    return EIO;
  }
  act_on_pending_flags(*qp);
  if (qp->srq != nullptr && !is_of_program(*qp->srq)) return post_datagram_receives(*qp, wr, bad_wr);
  qp->recv_lock.lock();
  int error = 0;
  for (; wr != nullptr; wr = wr->next) {
    error = post_one(*qp, *wr);
    if (error != 0) {
      *bad_wr = wr;
      break;
    }
  }
  qp->recv_lock.unlock();
  if (qp->shared->requester_waits.load(std::memory_order_relaxed) != 0) wake_requester(*qp);
  return error;
}

}  // namespace verbena
