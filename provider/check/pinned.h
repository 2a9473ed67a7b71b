// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include "check/model.h"

namespace verbena::check {

// `region` was registered: would a kernel have pinned so much memory for this process (Linux 6.1
// drivers/infiniband/core/umem.c, ib_umem_get())? With the lock held.
void check_pinned(const Region& region);

}  // namespace verbena::check
