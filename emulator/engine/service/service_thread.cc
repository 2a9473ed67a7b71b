// SPDX-License-Identifier: BSD-2-Clause
//
// The work of the service thread: what happens without a call of the program. Waiting requests, and what
// peers have reported.
#include <algorithm>
#include <utility>

#include "adapter/clock.h"
#include "engine/completion/lost_events.h"
#include "engine/completion/moderation.h"
#include "engine/completion/poll.h"
#include "engine/events/async_events.h"
#include "engine/memory/sharing.h"
#include "engine/objects/cq.h"
#include "engine/objects/qp.h"
#include "engine/qp_state/error_flow.h"
#include "engine/qp_state/pending_flags.h"
#include "engine/receive/shared_receive_queue.h"
#include "engine/responder/refusal.h"
#include "engine/service/engine_service.h"
#include "observe/log.h"

namespace verbena {
namespace {

// The interval of checks for what waits on a stopped peer or an unread pipe, ns.
constexpr int64_t kSlowTick = 10'000'000;

// Moves a QP to ERR whose CQ has overrun.
void fail_without_cq(Qp& qp) {
  {
    std::lock_guard send(qp.send_lock);
    const ibv_qp_state state = qp.state.load(std::memory_order_relaxed);
    if (state == IBV_QPS_ERR || state == IBV_QPS_RESET) return;
    enter_error(qp);
  }
  raise_qp_event(qp, IBV_EVENT_QP_FATAL);
}

}  // namespace

void EngineService::serve_cq(uint32_t index) {
  Cq* const cq = process_.cq(index);
  if (cq == nullptr) return;
  if (begin_moderation(*cq)) moderated_.push_back(index);
  if (cq->ignore_overrun || cq->shared->overrun.load(std::memory_order_acquire) == 0) return;
  if (!cq->failed.exchange(true)) {
    VERBENA_WARN(cq_overrun, "CQ %u overran its %d entries: it and its queue pairs are in error", index,
                 cq_capacity(cq));
    raise_cq_event(*cq, IBV_EVENT_CQ_ERR);
  }
  process_.for_each_qp([&](Qp& qp) {
    if (qp.send_cq == cq || qp.recv_cq == cq) fail_without_cq(qp);
  });
}

void EngineService::serve_srq(uint32_t index) {
  Srq* const srq = process_.srq(index);
  if (srq == nullptr) return;
  raise_srq_limit_if_reached(*srq);
  if (srq->cq != nullptr && srq->shared->scatter_wanted.exchange(0, std::memory_order_acq_rel) != 0)
    scatter_eager(*srq->cq);
}

void EngineService::serve_qp(uint32_t index) {
  Qp* const qp = process_.qp(index);
  if (qp == nullptr || process_.is_going(index)) return;
  act_on_pending_flags(*qp);
  const auto failed = [](const Cq* cq) { return cq != nullptr && cq->failed; };
  if (failed(qp->send_cq) || failed(qp->recv_cq)) fail_without_cq(*qp);
  if (!flush_receive_queue(*qp, kHazardPatience)) flushing_.push_back(index);
}

// Serves the objects that have been reported (adapter/change_set.h), and no others: the cost does not depend
// on how many objects there are. A doorbell may ring with nothing left to serve: the entry is added before
// the ring, so an earlier pass may have taken it. If a peer dies between setting a flag and reporting it, the
// flag stays until the next report or the next verb on the object.
void EngineService::serve_doorbell() {
  const bool called = process_.view().header().doorbell.exchange(0, std::memory_order_acq_rel) != 0;
  if (!called && flushing_.empty()) return;
  std::lock_guard lock(process_.serving_mutex());
  for (const uint32_t index : std::exchange(flushing_, {})) serve_qp(index);
  if (!called) return;
  if (process_.view().refusals().count.load(std::memory_order_acquire) != 0) log_refusals(process_);
  Changes& changes = process_.view().changes();
  changes.cqs.take([this](uint32_t index) { serve_cq(index); });
  changes.srqs.take([this](uint32_t index) { serve_srq(index); });
  changes.qps.take([this](uint32_t index) { serve_qp(index); });
}

int64_t EngineService::serve_thread(void* self) { return static_cast<EngineService*>(self)->serve(); }

int64_t EngineService::serve() {
  serve_device_events();
  serve_doorbell();
  int64_t next = std::min(xrc_shared_qps_.serve(), recording_.follow(process_.membership()));
  Remote* const others = begun_remote_.load(std::memory_order_acquire);
  if (roce_is_open_.load(std::memory_order_acquire)) next = std::min(next, roce_->serve());
  if (others != nullptr) next = std::min(next, others->serve());
  next = std::min(next, process_.scheduler().progress_from_service());
  if (const int64_t wanted = process_.peers().serve_regions(process_.membership()); wanted >= 0)
    next = std::min(next, now_ns() + wanted);
  process_.shared_regions().serve(process_.membership(), process_.view());
  if (const int64_t wanted = sweep_heap_when_due(); wanted >= 0) next = std::min(next, now_ns() + wanted);
  if (others != nullptr && others->groups().serve()) next = now_ns();
  if (connection_listener_is_open_.load(std::memory_order_acquire))
    next = std::min(next, connection_listener_.serve());
  if (!moderated_.empty()) next = std::min(next, raise_moderated_events(process_, moderated_));
  if (!flushing_.empty() || !reinject_lost_events(process_)) next = std::min(next, now_ns() + kSlowTick);
  return next == kEndOfTime ? -1 : std::max<int64_t>(next - now_ns(), 0);
}

}  // namespace verbena
