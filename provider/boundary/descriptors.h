// SPDX-License-Identifier: BSD-2-Clause
//
// The device files that this process opened through the boundary, by descriptor number.
//
// The table is a hint, never the truth: descriptors are closed, duplicated and reused behind its back, by raw
// system calls, close_range(2), and by vfork children that share this memory but not the descriptor table. So
// a device file is marked when it is opened, on its open file description, where only a duplicate carries the
// mark along: F_SETOWN names this process, F_SETSIG a number that the entry knows (fcntl(2); neither has an
// effect without O_ASYNC). A hit counts when
//   * the process that asks is the one that opened (getpid: a vfork child is another),
//   * the descriptor is the placeholder's character device,
//   * and it carries the entry's mark.
// The connection manager's descriptor is a pipe (provider/rdma_cm), which needs no mark: its inode is its
// own. A forked child starts with an empty table, as the kernel wipes it (MADV_WIPEONFORK, Linux 4.14).
//
// All functions are lock-free, async-signal-safe, and leave errno alone.
#pragma once

#include <cstddef>

#include "boundary/claim.h"

namespace verbena {

// Makes the table of this process. Without it nothing is ever a hit. Called once, before main.
void prepare_descriptors();

// `fd` is a device file that was opened just now. In a vfork child, or when 4,096 are open, it stays unknown:
// then nobody can claim it and commands fail with ENOSPC.
void adopt_descriptor(int fd);

// `fd` is the end of a new pipe that stands for a device file, with this handler. False: as above.
bool adopt_pipe(int fd, const verbena_boundary_handler& handler);

// May this process open device files at all? Not a vfork child, nor one without a table.
bool may_adopt();

// Is `fd` (verified) one of adopt_pipe, or a copy of it?
bool is_pipe_of_device(int fd);

// `copy` was made by dup(2) from `fd`, a moment ago: it is a device file if `fd` is, with the same handler.
void inherit_descriptor(int fd, int copy);

// Might `fd` be a device file? One load; false for nearly every descriptor of a program.
bool may_be_device(int fd);

// The handler of `fd`, verified as said above. False: write to the file as it is.
bool find_handler(int fd, verbena_boundary_handler* out);

// verbena_boundary_claim and verbena_boundary_release (claim.h). A claim of a copy whose original is claimed
// already is the copy's own: that is how ibv_import_device(3) makes a second context of one file.
int claim_descriptor(int fd, const verbena_boundary_handler& handler);
void release_descriptor(int fd);

}  // namespace verbena
