// SPDX-License-Identifier: BSD-2-Clause
//
// Operations on the tags of an SRQ (ibv_post_srq_ops(3)), and the completions that its owner appends: of
// these operations, and of the messages that it has fetched itself.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace verbena {

struct Qp;
struct Srq;

// Carries out the list. As ibv_post_srq_ops(3): 0; EINVAL: no tag matching, an unknown opcode, too many SGEs,
// a handle that is none; ENOMEM: the list is full, or max_ops completions are not polled. *bad_wr is then the
// first operation that was not carried out, and *why the reason, for the log.
int post_tag_operations(Srq& srq, ibv_ops_wr* wr, ibv_ops_wr** bad_wr, const char** why);

// The end of the rendezvous for tag `index` that `qp` has carried out: appends its completion. `failed`: the
// message was not fetched as a whole. `send_number`: of the queue pair's
// last request for it; UINT64_MAX: there was none. The caller holds send_lock.
void end_rendezvous(Srq& srq, const Qp& qp, uint32_t index, uint64_t send_number, bool failed);

}  // namespace verbena
