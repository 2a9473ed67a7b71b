// SPDX-License-Identifier: BSD-2-Clause
#include "engine/objects/scheduler.h"

#include <algorithm>

#include "adapter/clock.h"
#include "engine/objects/network.h"
#include "engine/objects/qp.h"

namespace verbena {
namespace {

// The service thread stays awake for this many ticks after the last request is finished, so that a program
// whose requests wait now and then does not wake it each time.
constexpr int kIdleTicks = 25;
constexpr int64_t kTick = 200'000;

}  // namespace

void Scheduler::publish() {
  const uint32_t sockets = work_.load(std::memory_order_relaxed) & kSockets;
  work_.store(static_cast<uint32_t>(waiting_.size()) | sockets, std::memory_order_release);
}

void Scheduler::set_sockets(uint32_t bit, bool active) {
  std::lock_guard lock(mutex_);
  const uint32_t work = work_.load(std::memory_order_relaxed);
  work_.store(active ? work | bit : work & ~bit, std::memory_order_release);
}

void Scheduler::set_network_active(bool active) { set_sockets(kNetworkIsActive, active); }
void Scheduler::set_packets_active(bool active) { set_sockets(kPacketsAreActive, active); }

void Scheduler::add(Qp* qp) {
  {
    std::lock_guard lock(mutex_);
    if (!qp->listed) {
      qp->listed = true;
      waiting_.push_back(qp);
      publish();
    }
  }
  if (!service_awake_.exchange(true, std::memory_order_acq_rel)) wake_(wake_context_);
}

void Scheduler::remove(Qp* qp) {
  std::lock_guard lock(mutex_);
  std::erase(waiting_, qp);
  publish();
  qp->listed = true;  // for good: it must not come back
}

int64_t Scheduler::progress_all(bool from_service) {
  int64_t next = kEndOfTime;
  std::erase_if(waiting_, [&](Qp* qp) {
    if (!qp->send_lock.try_lock()) {
      next = std::min(next, now_ns() + kTick);
      return false;
    }
    const int64_t wanted = progress_(*qp, from_service);
    const bool finished = qp->sq_next == qp->sq_posted || wanted == kEndOfTime;
    if (finished) qp->listed = false;
    qp->send_lock.unlock();
    next = std::min(next, wanted);
    return finished;
  });
  publish();
  return next;
}

void Scheduler::progress_from_poll(Network* network) {
  const uint32_t what = work_.load(std::memory_order_acquire);
  if ((what & kSockets) != 0) network->drive_from_poll();
  if ((what & ~kSockets) == 0) return;
  polled_.store(true, std::memory_order_relaxed);  // also if the service thread holds mutex_: it is to stop
  if (!mutex_.try_lock()) return;
  progress_all(false);
  mutex_.unlock();
}

int64_t Scheduler::progress_from_service() {
  int64_t next = kEndOfTime;
  bool waiting;
  {
    std::lock_guard lock(mutex_);
    // A program that polls drives the requests. The service thread drives them if no poll came for a tick.
    const bool polled = polled_.exchange(false, std::memory_order_relaxed);
    next = polled ? now_ns() + kTick : progress_all(true);
    waiting = !waiting_.empty();
  }
  if (waiting) {
    idle_ticks_ = 0;
  } else if (service_awake_.load(std::memory_order_relaxed)) {
    next = now_ns() + kTick;
    if (++idle_ticks_ > kIdleTicks) {
      idle_ticks_ = 0;
      service_awake_.store(false, std::memory_order_seq_cst);
      // A request may have been added just before, by a thread that saw the service thread awake.
      if ((work_.load(std::memory_order_relaxed) & ~kSockets) == 0) next = kEndOfTime;
    }
  }
  return next;
}

}  // namespace verbena
