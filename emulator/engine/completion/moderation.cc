// SPDX-License-Identifier: BSD-2-Clause
#include "engine/completion/moderation.h"

#include <errno.h>

#include <algorithm>

#include "adapter/clock.h"
#include "emulator.h"
#include "engine/completion/completion.h"
#include "engine/objects/context.h"

namespace verbena {
namespace {

// Raises the event unless all completions have been polled meanwhile. Called after a change of a word that
// producers read after publishing: either they see the change, or their entry is seen here.
void raise_what_is_due(Cq& cq) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!cq.consumer.seems_empty()) raise_kept_back_event(*cq.shared, cq.process->self());
}

}  // namespace

bool begin_moderation(Cq& cq) {
  SharedCq& shared = *cq.shared;
  if (cq.moderated_until != 0 || shared.timer_asked.load(std::memory_order_acquire) == 0) return false;
  const Moderation moderation = Moderation::unpack(shared.moderation.load(std::memory_order_relaxed));
  cq.moderated_until = now_ns() + int64_t{moderation.period} * 1000;
  return true;
}

int64_t raise_moderated_events(Process& process, std::vector<uint32_t>& indices) {
  int64_t next = kEndOfTime;
  std::lock_guard lock(process.serving_mutex());
  std::erase_if(indices, [&](uint32_t index) {
    Cq* const cq = process.cq(index);
    if (cq == nullptr || cq->moderated_until == 0) return true;  // destroyed, or another CQ since
    if (now_ns() < cq->moderated_until) {
      next = std::min(next, cq->moderated_until);
      return false;
    }
    cq->moderated_until = 0;
    cq->shared->timer_asked.store(0, std::memory_order_relaxed);
    raise_what_is_due(*cq);
    return true;
  });
  return next;
}

int modify_cq(Cq* cq, uint16_t count, uint16_t period) {
  if (int error = usable(*cq->context); error != 0) return error;
  SharedCq& shared = *cq->shared;
  shared.moderation.store(Moderation{count, period}.pack(), std::memory_order_relaxed);
  shared.unreported.store(0, std::memory_order_relaxed);
  // Raise what the previous setting has held back.
  raise_what_is_due(*cq);
  return 0;
}

}  // namespace verbena
