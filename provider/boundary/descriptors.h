// SPDX-License-Identifier: BSD-2-Clause
//
// The device files that this process has opened through the boundary, by descriptor number.
//
// The table is only a hint. Descriptors are closed, duplicated and reused without its notice: by raw system
// calls, by close_range(2), and by vfork children, which share this memory but not the descriptor table.
// Therefore a device file is marked on its open file description when it is opened; only a duplicate has the
// same mark. The mark is F_SETOWN with this process and F_SETSIG with a number that the entry keeps
// (fcntl(2); neither has an effect without O_ASYNC). An entry is valid if
// - the calling process is the one that opened the file (getpid: a vfork child is another process),
// - the descriptor is the placeholder's character device,
// - it has the entry's mark.
// The connection manager's descriptor is a pipe (provider/rdma_cm). It needs no mark, because its inode is
// unique. A forked child starts with an empty table: the kernel wipes it (MADV_WIPEONFORK, Linux 4.14).
//
// All functions are lock-free and async-signal-safe, and leave errno alone.
#pragma once

#include <cstddef>

#include "boundary/claim.h"

namespace verbena {

// Creates the table of this process. Without a table no descriptor is a device file. Called once, before
// main.
void prepare_descriptors();

// Enters `fd`, a device file that has just been opened. In a vfork child, or if 4,096 are open, it is not
// entered: it cannot be claimed, and commands fail with ENOSPC.
void adopt_descriptor(int fd);

// Enters `fd`, the end of a new pipe that represents a device file, with this handler. False: not entered, as
// above.
bool adopt_pipe(int fd, const verbena_boundary_handler& handler);

// May this process open device files? False in a vfork child, and without a table.
bool may_adopt();

// Is `fd` a descriptor of adopt_pipe(), or a copy of one? Verified.
bool is_pipe_of_device(int fd);

// `copy` has just been made from `fd` by dup(2). If `fd` is a device file, `copy` is one with the same
// handler.
void inherit_descriptor(int fd, int copy);

// Might `fd` be a device file? One load; false for nearly every descriptor of a program.
bool may_be_device(int fd);

// The handler of `fd`, verified as above. False: there is none, the kernel gets the call.
bool find_handler(int fd, verbena_boundary_handler* out);

// verbena_boundary_claim and verbena_boundary_release (claim.h). If the file of `fd` is already claimed, the
// new claim is for this descriptor only: ibv_import_device(3) makes a second context of one file in this way.
int claim_descriptor(int fd, const verbena_boundary_handler& handler);
void release_descriptor(int fd);

}  // namespace verbena
