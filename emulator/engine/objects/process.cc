// SPDX-License-Identifier: BSD-2-Clause
#include "engine/objects/process.h"

#include <stdio.h>

#include <algorithm>

#include "engine/objects/context.h"
#include "engine/objects/cq.h"
#include "engine/objects/network.h"
#include "engine/objects/qp.h"
#include "engine/objects/srq.h"
#include "observe/log.h"

namespace verbena {

Process::Process(const Above& above)
    : above_(above),
      scheduler_(
          above.progress, [](void* self) { static_cast<Process*>(self)->membership_.kick(); }, this) {}

Process::~Process() = default;

void Process::forget_qp(uint32_t index) {
  // The scheduler first: it may find something in flight, and have its deadline watched again.
  scheduler_.remove(qp(index));
  if (Network* const there = network(); there != nullptr) there->forget(*qp(index));
  std::lock_guard lock(serving_mutex_);
  gone_.push_back(index);
}

void Process::qp_is_gone(uint32_t index) {
  std::lock_guard lock(serving_mutex_);
  set_qp(index, nullptr);
  std::erase(gone_, index);
}

bool Process::is_going(uint32_t qp_index) const {
  return std::find(gone_.begin(), gone_.end(), qp_index) != gone_.end();
}

void Process::forget_cq(uint32_t index) {
  std::lock_guard lock(serving_mutex_);
  set_cq(index, nullptr);
}

void Process::forget_srq(uint32_t index) {
  std::lock_guard lock(serving_mutex_);
  set_srq(index, nullptr);
}

void Process::wait_for_own_producers(const Cq& cq) {
  std::lock_guard lock(serving_mutex_);
  const uint32_t qps = qp_indices_.ever_taken();
  for (uint32_t i = 0; i < qps; ++i) {
    Qp* qp = this->qp(i);
    if (qp == nullptr || (qp->send_cq != &cq && qp->recv_cq != &cq)) continue;
    std::lock_guard sending(qp->send_lock);
    std::lock_guard receiving(qp->recv_lock);
  }
}

void Process::delete_unused_contexts() {
  std::lock_guard lock(contexts_mutex);
  std::erase_if(left_contexts, [](Context* context) {
    if (context->users.load(std::memory_order_acquire) != 0) return false;
    delete context;
    return true;
  });
}

void Process::wait_for_hazards(const WaitingObject& object, uint32_t from_slot) {
  WaitingObject named = object;
  verbena::wait_for_hazards(
      directory(), membership_.slot(), from_slot,
      [](void* context, int32_t pid) {
        const auto& waiting = *static_cast<const WaitingObject*>(context);
        char number[16];
        snprintf(number, sizeof number, waiting.is_hexadecimal ? "0x%06x" : "%u", waiting.number);
        VERBENA_ERROR(
            stopped_process,
            "%s: %s %s: waits for process %d, which is stopped in the middle of a request to this adapter",
            waiting.call, waiting.kind, number, pid);
      },
      &named);
}

}  // namespace verbena
