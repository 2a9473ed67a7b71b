// SPDX-License-Identifier: BSD-2-Clause
#include "engine/completion/tag_operations.h"

#include <errno.h>

#include "engine/completion/completion_writer.h"
#include "engine/objects/cq.h"
#include "engine/objects/process.h"
#include "engine/objects/qp.h"
#include "engine/receive/tag_matching.h"
#include "engine/rules/program_enum.h"
#include "fabric/hazard_guard.h"

namespace verbena {
namespace {

// Appends a completion to the SRQ's CQ. Under Srq::lock, which serialises this ring. The caller raises the
// event.
bool append_tag_completion(Srq& srq, const Completion& completion, const TagCompletion& payload) {
  Process& process = *srq.process;
  const HazardGuard guard(process.hazards(), process.membership().slot());
  const CqProducer<CompletionRing> to{srq.tags->completions, *srq.cq->shared, process.self(),
                                      process.membership().worker()};
  return append_without_event(to, completion, payload) == Room::kClaimed;
}

void raise_tag_event(Srq& srq, bool failed) {
  raise_completion_event(*srq.cq->shared, srq.process->self(), failed);
}

// One operation, under Srq::lock.
int carry_out_operation(Srq& srq, ibv_ops_wr& wr, const char** why, bool* failed) {
  TagMatching& tags = *srq.tags;
  const bool signaled = (wr.flags & IBV_OPS_SIGNALED) != 0;
  if (signaled && tags.operations >= tags.max_ops) {
    *why = "the completions of max_ops operations are not polled";
    return ENOMEM;
  }
  ibv_wc_opcode opcode = IBV_WC_TM_SYNC;
  uint32_t index = 0;
  bool deleted = true;
  switch (number_in(wr.opcode)) {
    case IBV_WR_TAG_ADD:
      opcode = IBV_WC_TM_ADD;
      if (const int error = add_tag(srq, wr, why, &index); error != 0) return error;
      break;
    case IBV_WR_TAG_DEL:
      opcode = IBV_WC_TM_DEL;
      if (const int error = remove_tag(srq, wr.tm.handle, why, &deleted); error != 0) return error;
      break;
    case IBV_WR_TAG_SYNC:
      break;
    default:
      *why = "no such opcode";
      return EINVAL;
  }
  if ((wr.flags & IBV_OPS_TM_SYNC) != 0) tags.handled = static_cast<uint16_t>(wr.tm.unexpected_cnt);
  if (signaled) {
    const bool sync = wants_sync(tags);
    // Before the tag is used: its message completes later.
    const Completion completion{.qp_index = srq.index,
                                .qp_incarnation = srq.shared->incarnation.load(std::memory_order_relaxed),
                                .index = kTagSlot | index,
                                .status = static_cast<uint8_t>(deleted ? IBV_WC_SUCCESS : IBV_WC_TM_ERR),
                                .opcode = static_cast<uint8_t>(opcode & ~IBV_WC_RECV),
                                .flags = kCqeReceive | kCqeFromShared | kCqeXrc};
    if (append_tag_completion(
            srq, completion,
            {.wr_id = wr.wr_id, .wc_flags = sync ? unsigned{IBV_WC_TM_SYNC_REQ} : 0u, .end = TagEnd::kMore}))
      ++tags.operations;
    *failed = !deleted;
  }
  tags.list.enable(tags.posted, tags.handled);
  return 0;
}

}  // namespace

int post_tag_operations(Srq& srq, ibv_ops_wr* wr, ibv_ops_wr** bad_wr, const char** why) {
  if (!srq.tags) {
    *why = "the SRQ matches no tags";
    *bad_wr = wr;
    return EINVAL;
  }
  int error = 0;
  bool reclaimed = false, signaled = false, failed = false;
  srq.lock.lock();
  while (wr != nullptr) {
    if (!reclaimed && srq.tags->free.empty() && number_in(wr->opcode) == IBV_WR_TAG_ADD) {
      reclaimed = true;
      srq.lock.unlock();
      reclaim_tags(srq);
      srq.lock.lock();
    }
    error = carry_out_operation(srq, *wr, why, &failed);
    if (error != 0) break;
    signaled = signaled || (wr->flags & IBV_OPS_SIGNALED) != 0;
    wr = wr->next;
  }
  srq.lock.unlock();
  if (signaled) raise_tag_event(srq, failed);
  if (error != 0) *bad_wr = wr;
  return error;
}

void end_rendezvous(Srq& srq, const Qp& qp, uint32_t index, uint64_t send_number, bool failed) {
  {
    std::lock_guard lock(srq.lock);
    TagMatching& tags = *srq.tags;
    if (index >= tags.entries.size()) return;
    TagMatching::Entry& entry = tags.entries[index];
    if (entry.number == 0 || entry.qp_index != qp.index) return;
    append_tag_completion(
        srq,
        {.qp_index = qp.index,
         .qp_incarnation = qp.shared->incarnation,
         .index = kTagSlot | index,
         .byte_len = entry.length,
         .status = static_cast<uint8_t>(failed ? IBV_WC_TM_RNDV_INCOMPLETE : IBV_WC_SUCCESS),
         .opcode = IBV_WC_TM_RECV & ~IBV_WC_RECV,
         .flags = kCqeReceive | kCqeFromShared},
        {.wc_flags = failed ? 0u : unsigned{IBV_WC_TM_DATA_VALID},
         .end = TagEnd::kFree,
         .send_number = static_cast<uint32_t>(send_number + 1)});
  }
  raise_tag_event(srq, failed);
}

}  // namespace verbena
