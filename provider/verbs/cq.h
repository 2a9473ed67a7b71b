// SPDX-License-Identifier: BSD-2-Clause
//
// The common part of ibv_create_cq(3) and ibv_create_cq_ex(3).
#pragma once

#include "verbs/objects.h"

namespace verbena::verbs {

// Creates the emulator's CQ for `cq`, which is zeroed, and fills in the fields that libibverbs leaves to the
// provider. 0, or the errno of the refusal.
int fill_cq(VerbsCq& cq, ibv_context* context, int cqe, ibv_comp_channel* channel, int comp_vector,
            const CqOptions& options);

// The completion that the program reads between ibv_start_poll and ibv_end_poll.
const ibv_wc* current_completion(ibv_cq_ex* cq);

}  // namespace verbena::verbs
