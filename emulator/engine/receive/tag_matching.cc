// SPDX-License-Identifier: BSD-2-Clause
#include "engine/receive/tag_matching.h"

#include <errno.h>

#include <algorithm>
#include <new>

#include "engine/objects/cq.h"
#include "engine/objects/process.h"
#include "engine/objects/qp.h"
#include "engine/receive/shared_receive_queue.h"

namespace verbena {
namespace {

// Unexpected messages that the program has polled and not reported: then it is asked to (mlx5's
// MLX5_TM_MAX_SYNC_DIFF).
constexpr uint16_t kMostUnreported = 0x3fff;

constexpr uint32_t kIndexBits = 16;
static_assert(kMostTags < 1u << kIndexBits);

// The handle of a tag: its index, and the low bits of its number, so that an old handle names no later tag.
uint32_t handle_of(uint32_t index, uint64_t number) {
  return static_cast<uint32_t>(number << kIndexBits) | index;
}

}  // namespace

void give_back_tag(TagMatching& tags, uint32_t index) {
  if (index >= tags.entries.size() || tags.entries[index].number == 0) return;
  tags.entries[index].number = 0;
  tags.entries[index].qp_index = UINT32_MAX;
  tags.list.tags[index].word.store(TagWord{TagState::kFree, 0, 0}.pack(), std::memory_order_release);
  tags.free.push_back(index);
}

bool wants_sync(const TagMatching& tags) {
  const TagPhase phase = tags.list.phase();
  return phase.unexpected != tags.handled;
}

void reclaim_tags(Srq& srq) {
  struct Candidate {
    uint32_t index;
    uint64_t number;
  };
  TagMatching& tags = *srq.tags;
  std::vector<Candidate> candidates;
  const NodeDirectory& directory = srq.process->directory();
  srq.lock.lock();
  try {
    for (uint32_t i = 0; i < tags.entries.size(); ++i) {
      const TagMatching::Entry& entry = tags.entries[i];
      if (entry.number == 0 || entry.qp_index != UINT32_MAX) continue;
      const TagWord word = TagWord::unpack(tags.list.tags[i].word.load(std::memory_order_acquire));
      if (word.state == TagState::kLost ||
          (word.state == TagState::kTaken && !directory.worker_alive(word.worker)))
        candidates.push_back({i, entry.number});
    }
  } catch (const std::bad_alloc&) {
    candidates.clear();
  }
  srq.lock.unlock();
  std::erase_if(candidates, [&](const Candidate& candidate) {
    return !take_out_of_hand(srq, kTagSlot | candidate.index);
  });
  if (candidates.empty()) return;
  {
    std::lock_guard lock(srq.cq->lock);
    srq.cq->consumer.for_each([&](Cqe& entry, bool) {
      if ((entry.flags & kCqeFromShared) != 0 && is_tag(entry.index) &&
          shared_queue_of(*srq.cq, entry) == &srq)
        std::erase_if(candidates,
                      [&](const Candidate& candidate) { return candidate.index == tag_index(entry.index); });
      return false;
    });
  }
  srq.lock.lock();
  // A rendezvous may have begun meanwhile: its completion was polled.
  for (const Candidate& candidate : candidates)
    if (const TagMatching::Entry& entry = tags.entries[candidate.index];
        entry.number == candidate.number && entry.qp_index == UINT32_MAX)
      give_back_tag(tags, candidate.index);
  srq.lock.unlock();
}

// The keys of the buffer are checked when a message takes it, as those of receive requests.
int add_tag(Srq& srq, ibv_ops_wr& wr, const char** why, uint32_t* index) {
  TagMatching& tags = *srq.tags;
  if (wr.tm.add.num_sge < 0 || wr.tm.add.num_sge > 1) {
    *why = "a tag has at most one SGE";
    return EINVAL;
  }
  if (wr.tm.add.num_sge == 1 && wr.tm.add.sg_list == nullptr) {
    *why = "sg_list is null";
    return EINVAL;
  }
  if (tags.free.empty()) {
    *why = "the list of tags is full";
    return ENOMEM;
  }
  *index = tags.free.back();
  tags.free.pop_back();
  TagMatching::Entry& entry = tags.entries[*index];
  entry.number = ++tags.posted;
  entry.wr_id = wr.tm.add.recv_wr_id;
  entry.sge = wr.tm.add.num_sge == 1 ? wr.tm.add.sg_list[0] : ibv_sge{};
  entry.qp_index = UINT32_MAX;
  tags.list.post(*index, entry.number, wr.tm.add.tag, wr.tm.add.mask,
                 {entry.sge.addr, entry.sge.length, entry.sge.lkey});
  wr.tm.handle = handle_of(*index, entry.number);
  return 0;
}

int remove_tag(Srq& srq, uint32_t handle, const char** why, bool* deleted) {
  TagMatching& tags = *srq.tags;
  const uint32_t index = handle & ((1u << kIndexBits) - 1);
  if (index >= tags.entries.size()) {
    *why = "no such handle";
    return EINVAL;
  }
  const uint64_t number = tags.entries[index].number;
  *deleted = number != 0 && handle_of(index, number) == handle && tags.list.remove(index, number);
  if (*deleted) give_back_tag(tags, index);
  return 0;
}

int make_tags(Srq& srq, Cq& cq, uint32_t max_num_tags, uint32_t max_ops) {
  Process& process = *srq.process;
  const uint64_t bytes = sizeof(SharedTag) * uint64_t{max_num_tags};
  try {
    auto tags = std::make_unique<TagMatching>();
    tags->entries.resize(max_num_tags);
    tags->rendezvous.reserve(max_num_tags);
    for (uint32_t i = max_num_tags; i-- != 0;) tags->free.push_back(i);
    tags->max_ops = max_ops;
    tags->completions = CompletionRing::of(process.view(), *cq.shared, &tags->known_head);
    srq.memory.reserve(srq.memory.size() + 1);
    const uint64_t offset = process.segment().allocate(bytes);
    if (offset == 0) return ENOMEM;
    srq.memory.push_back({offset, bytes});
    auto* const first = process.view().at<SharedTag>(offset, max_num_tags);
    if (first == nullptr || tags->completions.entries == nullptr) return ENOMEM;
    for (uint32_t i = 0; i < max_num_tags; ++i) first[i].word.store(0, std::memory_order_relaxed);
    srq.shared->tag_offset = offset;
    srq.shared->tag_address = reinterpret_cast<uint64_t>(first);
    srq.shared->tag_count = max_num_tags;
    srq.shared->tag_phase.store(0, std::memory_order_release);
    // What the process itself reads of the list does not come from the segment.
    tags->list = {srq.shared, first, max_num_tags, reinterpret_cast<uint64_t>(first)};
    srq.cq = &cq;
    srq.tags = std::move(tags);
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
  return 0;
}

bool take_tag_completion(Srq& srq, const Qp* qp, const Cqe& entry, const TagCompletion& completion,
                         ibv_wc* wc) {
  constexpr uint32_t kFlags = IBV_WC_TM_SYNC_REQ | IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID;
  wc->wc_flags |= completion.wc_flags & kFlags;
  if (!srq.tags) return false;
  TagMatching& tags = *srq.tags;
  std::lock_guard lock(srq.lock);
  const int opcode = entry.opcode | IBV_WC_RECV;
  switch (opcode) {
    case IBV_WC_TM_ADD:
    case IBV_WC_TM_DEL:
    case IBV_WC_TM_SYNC:
      if (tags.operations != 0) --tags.operations;
      wc->wr_id = completion.wr_id;
      return false;
    default:
      break;
  }
  if (!is_tag(entry.index)) {
    wc->wr_id = entry.index < srq.ring.slots() ? srq.slot(entry.index).wr_id : 0;
    give_back_slot(srq, entry.index);
    // A message that met no tag. IBV_WC_TM_NO_TAG: it has none, and is not counted.
    if (opcode == IBV_WC_TM_RECV && entry.status == IBV_WC_SUCCESS) {
      ++tags.polled;
      if (static_cast<uint16_t>(tags.polled - tags.handled) > kMostUnreported ||
          tags.list.phase().enabled != tags.posted)
        wc->wc_flags |= IBV_WC_TM_SYNC_REQ;
    }
    return false;
  }
  const uint32_t tag = tag_index(entry.index);
  if (tag >= tags.entries.size()) return false;
  TagMatching::Entry& matched = tags.entries[tag];
  wc->wr_id = matched.wr_id;
  if (completion.end == TagEnd::kMore && entry.status == IBV_WC_SUCCESS) return false;
  // Of several such completions, as a damaged queue may have, the first one counts: the vector has room.
  if (completion.end == TagEnd::kRendezvous && entry.status == IBV_WC_SUCCESS && qp != nullptr &&
      matched.number != 0 && matched.qp_index == UINT32_MAX) {
    matched.qp_index = qp->index;
    matched.qp_incarnation = qp->shared->incarnation;
    tags.rendezvous.push_back(tag);
    return true;
  }
  give_back_tag(tags, tag);
  return false;
}

uint64_t wr_id_of_tag(Srq& srq, uint32_t index) {
  std::lock_guard lock(srq.lock);
  return srq.tags && index < srq.tags->entries.size() ? srq.tags->entries[index].wr_id : 0;
}

void free_tag(Srq& srq, uint32_t index) {
  std::lock_guard lock(srq.lock);
  if (srq.tags) give_back_tag(*srq.tags, index);
}

void forget_tag_completion(Srq& srq, const Cqe& entry) {
  if (!is_tag_completion(entry) || tag_completion_of(entry).end != TagEnd::kMore)
    free_tag(srq, tag_index(entry.index));
}

void forget_rendezvous(Srq& srq, const Qp& qp) {
  if (!srq.tags) return;
  std::lock_guard lock(srq.lock);
  TagMatching& tags = *srq.tags;
  for (uint32_t i = 0; i < tags.entries.size(); ++i) {
    const TagMatching::Entry& entry = tags.entries[i];
    if (entry.number == 0 || entry.qp_index != qp.index) continue;
    std::erase(tags.rendezvous, i);
    give_back_tag(tags, i);
  }
}

}  // namespace verbena
