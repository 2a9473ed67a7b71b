// SPDX-License-Identifier: BSD-2-Clause
//
// `verbena check`: the checker's operations instead of our own (check/layer.h).
#pragma once

#include "rdma_core/layout.h"

namespace verbena::verbs {

// The table for libibverbs: the checker's if the process has one, else `own`. `own` must live for good.
const rdma_core::ContextOps& checked(const rdma_core::ContextOps& own);

// `context` has been opened.
void tell_checker(ibv_context* context);

}  // namespace verbena::verbs
