// SPDX-License-Identifier: BSD-2-Clause
//
// `verbena check --like FAMILY`: what adapters of the family would refuse. Each takes the lock.
#pragma once

#include <infiniband/verbs.h>

#include "check/stack.h"

namespace verbena::check {

void compare_qp(ibv_qp_type type, const ibv_qp_cap& cap, bool has_srq, const Stack& stack);
void compare_cq(int entries, const Stack& stack);

// `ability`: findings/families.h. `what` is the beginning of the sentence.
void compare_ability(unsigned ability, const char* what, const Stack& stack);

}  // namespace verbena::check
