// SPDX-License-Identifier: BSD-2-Clause
#include "engine/remote/deadlines.h"

#include <algorithm>

#include "adapter/clock.h"
#include "engine/objects/qp.h"
#include "engine/remote/remote_path.h"
#include "engine/requester/requester.h"
#include "fabric/node_membership.h"

namespace verbena {
namespace {

constexpr int64_t kLongestTick = 10'000'000, kShortestTick = 1'000'000;

}  // namespace

void Deadlines::watch(Qp& qp) {
  {
    std::lock_guard lock(mutex_);
    watched_.push_back(&qp);
  }
  keep_ticking();
}

void Deadlines::forget(Qp& qp) {
  std::lock_guard lock(mutex_);
  std::erase(watched_, &qp);
}

void Deadlines::note_lingering() {
  lingers_.store(true, std::memory_order_relaxed);
  if (!is_ticking()) keep_ticking();
}

void Deadlines::keep_ticking() {
  if (!ticking_.exchange(true, std::memory_order_acq_rel)) membership_.kick();
}

int64_t Deadlines::check(int64_t now) {
  std::lock_guard lock(mutex_);
  int64_t next = kEndOfTime;
  std::erase_if(watched_, [&](Qp* qp) {
    if (!qp->send_lock.try_lock()) {
      next = std::min(next, now + kShortestTick);
      return false;
    }
    RemotePath* const path = path_of(*qp);
    const int64_t wanted = path != nullptr ? check_deadline(*qp, now) : kEndOfTime;
    if (wanted == kEndOfTime && path != nullptr) path->is_watched = false;
    qp->send_lock.unlock();
    next = std::min(next, wanted);
    return wanted == kEndOfTime;
  });
  if (watched_.empty()) {
    if (!lingers_.load(std::memory_order_relaxed)) ticking_.store(false, std::memory_order_release);
    return kEndOfTime;
  }
  return std::clamp(next, now + kShortestTick, now + kLongestTick);
}

}  // namespace verbena
