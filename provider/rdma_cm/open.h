// SPDX-License-Identifier: BSD-2-Clause
//
// The device file: the functions that the preload calls (claim.h), and the file of a descriptor.
#pragma once

#include <memory>

#include "boundary/claim.h"
#include "rdma_cm/state.h"

namespace verbena::rdma_cm {

// verbena_rdma_cm_open.
int open_device(int flags, verbena_boundary_handler* handler);

// ENOENT: the descriptor is not open; EINVAL: it is something else (ucma_migrate_id).
int file_of_descriptor(State& state, int fd, std::shared_ptr<File>* out);

// The function that file_of_descriptor calls; nullptr: verbena_boundary_find of the preload.
extern verbena_boundary_find_fn find_descriptor;

}  // namespace verbena::rdma_cm
