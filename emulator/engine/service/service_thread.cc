// SPDX-License-Identifier: BSD-2-Clause
//
// What happens without a call of the program that asks for it: requests that wait, and what peers left word of.
#include <algorithm>

#include "engine/completion/lost_events.h"
#include "engine/completion/moderation.h"
#include "engine/completion/poll.h"
#include "engine/events/async_events.h"
#include "engine/objects/cq.h"
#include "engine/objects/qp.h"
#include "engine/qp_state/error_flow.h"
#include "engine/receive/shared_receive_queue.h"
#include "engine/rules/clock.h"
#include "engine/service/engine_service.h"
#include "observe/log.h"

namespace verbena {
namespace {

// What waits for a stopped peer or an unread pipe is looked at this often (ns).
constexpr int64_t kSlowTick = 10'000'000;

// A CQ of it is lost.
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

void EngineService::serve_doorbell() {
  SegmentHeader& header = process_.view().header();
  const bool called = header.doorbell.exchange(0, std::memory_order_acq_rel) != 0;
  if (!called && !flushing_) return;
  flushing_ = false;
  std::lock_guard lock(process_.serving_mutex());
  const uint32_t cqs = header.cq_high_water.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < cqs; ++i) {
    Cq* cq = process_.cq(i);
    if (cq != nullptr && begin_moderation(*cq)) moderating_ = true;
    if (cq == nullptr || cq->ignore_overrun || cq->shared->overrun.load(std::memory_order_acquire) == 0 ||
        cq->failed.exchange(true))
      continue;
    VERBENA_WARN("CQ %u overran its %d entries: it and its queue pairs are in error", i, cq_capacity(cq));
    raise_cq_event(*cq, IBV_EVENT_CQ_ERR);
  }
  const uint32_t srqs = header.srq_high_water.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < srqs; ++i)
    if (Srq* srq = process_.srq(i); srq != nullptr) {
      raise_srq_limit_if_reached(*srq);
      if (srq->cq != nullptr && srq->shared->scatter_wanted.exchange(0, std::memory_order_acq_rel) != 0)
        scatter_eager(*srq->cq);
    }
  const uint32_t qps = header.qp_high_water.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < qps; ++i) {
    Qp* qp = process_.qp(i);
    if (qp == nullptr || process_.is_going(i)) continue;
    act_on_pending_flags(*qp);
    const auto failed = [](const Cq* cq) { return cq != nullptr && cq->failed; };
    if (failed(qp->send_cq) || failed(qp->recv_cq)) fail_without_cq(*qp);
    if (!flush_receive_queue(*qp, kHazardPatience)) flushing_ = true;
  }
}

int64_t EngineService::serve_thread(void* self) { return static_cast<EngineService*>(self)->serve(); }

int64_t EngineService::serve() {
  serve_device_events();
  serve_doorbell();
  int64_t next = xrc_shared_qps_.serve();
  Remote* const others = process_.network() != nullptr ? remote_.get() : nullptr;
  if (others != nullptr) next = std::min(next, others->serve());
  next = std::min(next, process_.scheduler().progress_from_service());
  if (others != nullptr && others->groups().serve()) next = now_ns();
  if (connection_listener_is_open_.load(std::memory_order_acquire))
    next = std::min(next, connection_listener_.serve());
  if (moderating_) {
    const int64_t due = raise_moderated_events(process_);
    moderating_ = due != kEndOfTime;
    next = std::min(next, due);
  }
  if (flushing_ || !reinject_lost_events(process_)) next = std::min(next, now_ns() + kSlowTick);
  return next == kEndOfTime ? -1 : std::max<int64_t>(next - now_ns(), 0);
}

}  // namespace verbena
