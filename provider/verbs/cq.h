// SPDX-License-Identifier: BSD-2-Clause
//
// What ibv_create_cq(3) and ibv_create_cq_ex(3) have in common.
#pragma once

#include "verbs/objects.h"

namespace verbena::verbs {

// Makes the emulator's CQ of `cq`, which is zeroed, and fills in what libibverbs leaves to the provider. 0,
// or the errno of the refusal.
int fill_cq(VerbsCq& cq, ibv_context* context, int cqe, ibv_comp_channel* channel, int comp_vector,
            const CqOptions& options);

}  // namespace verbena::verbs
