// SPDX-License-Identifier: BSD-2-Clause
//
// Posting requests (ibv_post_send(3)): each takes the fast path or goes through the send queue.
#include "engine/post/post_send.h"

#include <errno.h>

#include "emulator.h"
#include "engine/completion/streaming.h"
#include "engine/local/fast_path.h"
#include "engine/objects/qp.h"
#include "engine/post/queued_send.h"
#include "engine/qp_state/pending_flags.h"
#include "fabric/hazard_guard.h"

namespace verbena {
namespace {

int post_one(Qp& qp, const ibv_send_wr& wr, HazardGuard& guard) {
  const ibv_qp_state state = qp.state.load(std::memory_order_relaxed);
  const bool idle = qp.sq_next == qp.sq_posted;
  if (idle && state == IBV_QPS_RTS && take_fast_path(qp, wr, guard)) return 0;
  guard.end();
  return post_to_queue(qp, wr);
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
  if (is_dead(*qp)) {
    *bad_wr = wr;
    return EIO;
  }
  act_on_pending_flags(*qp);
  received_in_a_row = 0;
  // Said before the lock is taken, which is a full fence all the same. Not while waiting for it: its holder
  // may be waiting for hazard guards on end.
  HazardGuard guard;
  const uint32_t target = qp->expected_target.load(std::memory_order_relaxed);
  if (target != UINT32_MAX) guard.announce(qp->hazards, target, changes_word(wr));
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
