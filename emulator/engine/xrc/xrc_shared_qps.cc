// SPDX-License-Identifier: BSD-2-Clause
#include "engine/xrc/xrc_shared_qps.h"

#include <errno.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "emulator.h"
#include "engine/objects/qp.h"
#include "engine/qp_state/error_flow.h"
#include "engine/queue_pair/modify_qp.h"
#include "engine/queue_pair/queue_pair.h"
#include "engine/rules/clock.h"
#include "engine/xrc/xrc_openings.h"
#include "engine/xrc/xrc_request.h"
#include "fabric/hazards.h"
#include "fabric/xrc_domains.h"
#include "observe/log.h"

namespace verbena {
namespace {

// Nobody is told when a process dies: who holds another's queue pair, or has an orphan that others hold,
// looks so often.
constexpr int64_t kLook = 200'000'000;
constexpr int64_t kSoon = 10'000'000;

// Somebody in the maker's process has opened it again.
bool has_handle(Qp& qp) {
  std::lock_guard lock(qp.openings_mutex);
  return !qp.openings.empty();
}

}  // namespace

size_t XrcSharedQps::reply(const std::byte* bytes, size_t size, std::byte* out) {
  XrcModifyRequest question;
  if (size != sizeof question) return 0;
  std::memcpy(&question, bytes, size);
  if (question.what != XrcModifyRequest::kModify) return 0;
  if (question.peer.slot >= kMaxSlots && question.peer.slot != UINT32_MAX) return 0;
  XrcModifyReply answer{ESTALE};
  {
    std::lock_guard lock(process_.serving_mutex());
    Qp* qp = question.index < kMaxQpsPerProcess ? process_.qp(question.index) : nullptr;
    if (qp != nullptr && !process_.is_going(question.index) && qp->type == IBV_QPT_XRC_RECV &&
        qp->shared->qpn == question.qpn && qp->shared->birth == question.birth)
      answer.error = modify_for_another(*qp, question.attr, question.mask, question.peer);
  }
  std::memcpy(out, &answer, sizeof answer);
  return sizeof answer;
}

int XrcSharedQps::hold(Qp* qp) {
  {
    std::lock_guard lock(mutex_);
    try {
      foreign_.push_back(qp);
    } catch (const std::bad_alloc&) {
      return ENOMEM;
    }
  }
  process_.home().kick();  // from now on the service thread looks
  return 0;
}

void XrcSharedQps::let_go(Qp* qp) {
  std::lock_guard lock(mutex_);
  std::erase(foreign_, qp);
}

int XrcSharedQps::keep_orphan(Qp* qp) {
  {
    std::lock_guard lock(mutex_);
    try {
      orphans_.push_back({qp, false});
    } catch (const std::bad_alloc&) {
      return ENOMEM;
    }
  }
  process_.home().kick();
  return 0;
}

bool XrcSharedQps::adopt_orphan(Qp* qp) {
  std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(orphans_.begin(), orphans_.end(), [&](const Orphan& orphan) { return orphan.qp == qp; });
  if (found == orphans_.end()) return true;
  if (found->ending) return false;
  orphans_.erase(found);
  return true;
}

Standing XrcSharedQps::find(Qp& qp, ForeignPlace* out) {
  std::lock_guard lock(mutex_);
  const Standing standing = attend_foreign(qp);
  *out = foreign_of(qp);
  return standing;
}

// What its maker has left word of, or that it is gone, and who comes after it.
Standing XrcSharedQps::attend_foreign(Qp& qp) {
  ForeignQp& foreign = foreign_of(qp);
  if (foreign.lost) return Standing::kLost;
  if (foreign.there->birth == foreign.birth) raise_told_events(qp);
  const Standing standing = find_again(qp);
  if (standing == Standing::kLost) {
    foreign.lost = true;
    VERBENA_WARN("QP 0x%06x has ended with the process that made it", qp.shared->qpn);
    raise_qp_event(qp, IBV_EVENT_QP_FATAL);
  }
  return standing;
}

void XrcSharedQps::raise_told_events(Qp& qp) {
  ForeignQp& foreign = foreign_of(qp);
  const uint64_t word = foreign.there->events_told.load(std::memory_order_acquire);
  const uint64_t missed = (ToldEvents::count_of(word) - foreign.events_seen) & 0xffff;
  foreign.events_seen = ToldEvents::count_of(word);
  for (int ago = static_cast<int>(std::min<uint64_t>(missed, ToldEvents::kKept)) - 1; ago >= 0; --ago)
    raise_qp_event(qp, static_cast<ibv_event_type>(ToldEvents::type(word, ago)));
}

// True: it has ended. Nothing here waits: whoever is at work in the queue pair, or holds the table's lock,
// may be stopped.
bool XrcSharedQps::end_orphan(Orphan& orphan) {
  Qp& qp = *orphan.qp;
  if (!orphan.ending) {
    if (!end_xrc_qp(process_.directory(), process_.home().node(), process_.home().slot(), qp.shared->qpn, false)) return false;
    qp.send_lock.lock();
    shut_gate(qp, IBV_QPS_RESET);
    qp.send_lock.unlock();
    process_.forget_qp(qp.index);
    orphan.ending = true;
  }
  if (!visitors_gone(process_.directory(), process_.home().slot(), qp.shared->dest_slot, kVisitPatience)) return false;
  process_.qp_is_gone(qp.index);
  qp.shared->in_use.store(0, std::memory_order_release);
  free_qp(&qp);
  return true;
}

int64_t XrcSharedQps::serve() {
  std::lock_guard lock(mutex_);
  bool between = false;
  for (Qp* qp : foreign_) between |= attend_foreign(*qp) == Standing::kLater;
  std::erase_if(orphans_, [this](Orphan& orphan) { return has_handle(*orphan.qp) || end_orphan(orphan); });
  if (foreign_.empty() && orphans_.empty()) return kEndOfTime;
  const bool ending =
      std::any_of(orphans_.begin(), orphans_.end(), [](const Orphan& orphan) { return orphan.ending; });
  return now_ns() + (ending || between ? kSoon : kLook);
}

}  // namespace verbena
