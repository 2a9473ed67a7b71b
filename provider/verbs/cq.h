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

}  // namespace verbena::verbs
