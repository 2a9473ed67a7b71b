// SPDX-License-Identifier: BSD-2-Clause
//
// What happens without a call of the program that asks for it: requests that wait, and what peers left word
// of.
#include <algorithm>

#include "engine/clock.h"
#include "engine/completion/moderation.h"
#include "engine/objects.h"
#include "engine/process.h"
#include "engine/queue_pair/error_flow.h"
#include "engine/remote/remote.h"
#include "engine/requester/requester.h"
#include "observe/log.h"
#include "observe/mutant.h"

namespace verbena {
namespace {

// The service thread goes on looking for so many ticks after the last request has gone, so that a program
// that waits now and then does not pay for waking it each time.
constexpr int kIdleTicks = 25;
constexpr int64_t kTick = 200'000;
// What waits for a stopped peer or an unread pipe is looked at this often.
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

void Process::publish_pending() {
  const uint32_t remote = pending_count_.load(std::memory_order_relaxed) & kRemoteIsActive;
  pending_count_.store(static_cast<uint32_t>(pending_.size()) | remote, std::memory_order_release);
}

void Process::poll_remote(bool active) {
  std::lock_guard lock(pending_mutex_);
  pending_count_.store(static_cast<uint32_t>(pending_.size()) | (active ? kRemoteIsActive : 0),
                       std::memory_order_release);
}

void Process::add_pending(Qp* qp) {
  {
    std::lock_guard lock(pending_mutex_);
    if (!qp->listed) {
      qp->listed = true;
      pending_.push_back(qp);
      publish_pending();
    }
  }
  if (!service_awake_.exchange(true, std::memory_order_acq_rel)) membership_.kick();
}

void Process::forget_qp(uint32_t index) {
  if (Remote* const there = remote(); there != nullptr) there->forget(*this->qp(index));
  {
    std::lock_guard lock(pending_mutex_);
    Qp* qp = this->qp(index);
    std::erase(pending_, qp);
    publish_pending();
    qp->listed = true;  // for good: it must not come back
  }
  std::lock_guard lock(doorbell_mutex_);
  gone_.push_back(index);
}

void Process::qp_is_gone(uint32_t index) {
  std::lock_guard lock(doorbell_mutex_);
  set_qp(index, nullptr);
  std::erase(gone_, index);
}

bool Process::is_going(uint32_t qp_index) const {
  return std::find(gone_.begin(), gone_.end(), qp_index) != gone_.end();
}

void Process::forget_cq(uint32_t index) {
  std::lock_guard lock(doorbell_mutex_);
  set_cq(index, nullptr);
}

void Process::forget_srq(uint32_t index) {
  std::lock_guard lock(doorbell_mutex_);
  set_srq(index, nullptr);
}

void Process::wait_for_own_producers(const Cq& cq) {
  std::lock_guard lock(doorbell_mutex_);
  const uint32_t qps = view().header().qp_high_water.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < qps; ++i) {
    Qp* qp = this->qp(i);
    if (qp == nullptr || (qp->send_cq != &cq && qp->recv_cq != &cq)) continue;
    std::lock_guard sending(qp->send_lock);
    std::lock_guard receiving(qp->recv_lock);
  }
}

int64_t Process::progress_pending(bool from_service) {
  int64_t next = kEndOfTime;
  std::erase_if(pending_, [&](Qp* qp) {
    if (!qp->send_lock.try_lock()) {
      next = std::min(next, now_ns() + kTick);
      return false;
    }
    const int64_t wanted = progress_send_queue(*qp, from_service);
    const bool finished = qp->sq_next == qp->sq_posted || wanted == kEndOfTime;
    if (finished) qp->listed = false;
    qp->send_lock.unlock();
    next = std::min(next, wanted);
    return finished;
  });
  publish_pending();
  return next;
}

void Process::progress_from_poll() {
  const uint32_t what = pending_count_.load(std::memory_order_acquire);
  if ((what & kRemoteIsActive) != 0) remote()->drive_from_poll();
  if ((what & ~kRemoteIsActive) == 0) return;
  polled_.store(true, std::memory_order_relaxed);  // also while the service thread is at it: it is to stop
  if (!pending_mutex_.try_lock()) return;
  progress_pending(false);
  pending_mutex_.unlock();
}

void Process::serve_doorbell() {
  SegmentHeader& header = view().header();
  const bool called = header.doorbell.exchange(0, std::memory_order_acq_rel) != 0;
  if (!called && !flushing_) return;
  flushing_ = false;
  std::lock_guard lock(doorbell_mutex_);
  const uint32_t cqs = header.cq_high_water.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < cqs; ++i) {
    Cq* cq = this->cq(i);
    if (cq != nullptr && begin_moderation(*cq)) moderating_ = true;
    if (cq == nullptr || cq->ignore_overrun || cq->shared->overrun.load(std::memory_order_acquire) == 0 ||
        cq->failed.exchange(true))
      continue;
    VERBENA_WARN("CQ %u overran its %d entries: it and its queue pairs are in error", i, cq_capacity(cq));
    if (!mutated("event-cq-error-missing")) raise_cq_event(*cq, IBV_EVENT_CQ_ERR);
  }
  const uint32_t srqs = header.srq_high_water.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < srqs; ++i)
    if (Srq* srq = this->srq(i); srq != nullptr) {
      raise_srq_limit_if_reached(*srq);
      if (srq->cq != nullptr && srq->shared->scatter_wanted.exchange(0, std::memory_order_acq_rel) != 0)
        scatter_eager(*srq->cq);
    }
  const uint32_t qps = header.qp_high_water.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < qps; ++i) {
    Qp* qp = this->qp(i);
    if (qp == nullptr || is_going(i)) continue;
    act_on_pending_flags(*qp);
    const auto failed = [](const Cq* cq) { return cq != nullptr && cq->failed; };
    if (failed(qp->send_cq) || failed(qp->recv_cq)) fail_without_cq(*qp);
    if (!flush_receive_queue(*qp, kHazardPatience)) flushing_ = true;
  }
}

int64_t Process::serve() {
  serve_device_events();
  serve_doorbell();
  const int64_t handles = serve_shared_qps();
  Remote* const others = remote();
  const int64_t remote = others != nullptr ? others->serve() : kEndOfTime;
  int64_t next = kEndOfTime;
  bool pending;
  {
    std::lock_guard lock(pending_mutex_);
    // Whoever polls drives the requests; only what nobody has polled for a tick is ours.
    const bool polled = polled_.exchange(false, std::memory_order_relaxed);
    next = polled ? now_ns() + kTick : progress_pending(true);
    pending = !pending_.empty();
  }
  if (pending) {
    idle_ticks_ = 0;
  } else if (service_awake_.load(std::memory_order_relaxed)) {
    next = now_ns() + kTick;
    if (++idle_ticks_ > kIdleTicks) {
      idle_ticks_ = 0;
      service_awake_.store(false, std::memory_order_seq_cst);
      // Somebody may have queued a request and found us awake just before.
      if ((pending_count_.load(std::memory_order_relaxed) & ~kRemoteIsActive) == 0) next = kEndOfTime;
    }
  }
  next = std::min({next, handles, remote});
  if (others != nullptr && others->groups().serve()) next = now_ns();
  if (connection_listener_is_open_.load(std::memory_order_acquire))
    next = std::min(next, connection_listener_.serve());
  if (moderating_) next = std::min(next, raise_moderated_events());
  if (flushing_ || !reinject_lost_events()) next = std::min(next, now_ns() + kSlowTick);
  return next == kEndOfTime ? -1 : std::max<int64_t>(next - now_ns(), 0);
}

}  // namespace verbena
