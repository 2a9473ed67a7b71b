// SPDX-License-Identifier: BSD-2-Clause
//
// The owner's half of the tags of an SRQ (adapter/tag_list.h): the list, and what becomes of a tag when its
// message has been polled. The rules are those of ibv_post_srq_ops(3) and of mlx5
// (providers/mlx5/qp.c, mlx5_post_srq_ops(); cq.c, handle_tag_matching()).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <cstring>

#include "engine/objects/srq.h"

namespace verbena {

struct Qp;

// Gives the SRQ room for `max_num_tags` tags and `max_ops` operations. 0 or ENOMEM.
int make_tags(Srq& srq, Cq& cq, uint32_t max_num_tags, uint32_t max_ops);

// ---- the list, under Srq::lock ----

// Adds a tag, which is not used before TagList::enable(). As post_tag_operations(). *index: of the tag.
int add_tag(Srq& srq, ibv_ops_wr& wr, const char** why, uint32_t* index);

// Takes the tag with this handle out. *deleted false: a message has taken it, or the handle is old. EINVAL:
// no handle.
int remove_tag(Srq& srq, uint32_t handle, const char** why, bool* deleted);

// The tag may be used again. One that is free is left alone.
void give_back_tag(TagMatching& tags, uint32_t index);

// Does the program have to report unexpected messages before its newest tags are used?
bool wants_sync(const TagMatching& tags);

// ---- without it ----

// Frees the tags whose takers died without a completion, or whose completions are lost. The caller holds no
// Cq::lock.
void reclaim_tags(Srq& srq);

// A completion of tag matching is polled: fills in what the owner alone knows, and frees the slot or the tag.
// `qp`: that the message came to, or nullptr. True: a rendezvous is to be started (Rendezvous::start()). The
// caller holds Cq::lock.
bool take_tag_completion(Srq& srq, const Qp* qp, const Cqe& entry, const TagCompletion& completion,
                         ibv_wc* wc);

// The wr_id of a tag: recv_wr_id of the operation that added it.
uint64_t wr_id_of_tag(Srq& srq, uint32_t index);

// Frees a tag whose completion is gone. One that is free is left alone.
void free_tag(Srq& srq, uint32_t index);

// The completion of `entry` is purged with its queue pair.
void forget_tag_completion(Srq& srq, const Cqe& entry);

// The queue pair ends: the messages that it was to fetch never come.
void forget_rendezvous(Srq& srq, const Qp& qp);

// Is it a completion of tag matching? `entry` may be damaged.
inline bool is_tag_completion(const Cqe& entry) {
  constexpr uint8_t kFirst = IBV_WC_TM_ADD & ~IBV_WC_RECV, kLast = IBV_WC_TM_NO_TAG & ~IBV_WC_RECV;
  return (entry.flags & kCqeReceive) != 0 && entry.opcode >= kFirst && entry.opcode <= kLast;
}

inline TagCompletion tag_completion_of(const Cqe& entry) {
  TagCompletion completion;
  std::memcpy(&completion, entry.payload, sizeof completion);
  return completion;
}

}  // namespace verbena
