// SPDX-License-Identifier: BSD-2-Clause
//
// The device file from both sides: what the preload calls (claim.h), and which file a descriptor is.
#pragma once

#include <memory>

#include "boundary/claim.h"
#include "rdma_cm/state.h"

namespace verbena::rdma_cm {

// verbena_rdma_cm_open.
int open_device(int flags, verbena_boundary_handler* handler);

// ENOENT: the descriptor is not open; EINVAL: it is something else (ucma_migrate_id).
int file_of_descriptor(State& state, int fd, std::shared_ptr<File>* out);

// Where file_of_descriptor asks; nullptr: the preload's verbena_boundary_find. For tests, which have no
// preload.
extern verbena_boundary_find_fn find_descriptor;

}  // namespace verbena::rdma_cm
