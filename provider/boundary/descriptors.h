// SPDX-License-Identifier: BSD-2-Clause
//
// The device files that this process has opened through the boundary, by descriptor number.
//
// The table is only a hint. The boundary does not see every close, copy and reuse of a descriptor: there
// are raw system calls, close_range(2), and vfork children, which share this memory but not the descriptor
// table.
//
// Therefore a mark is set on the open file description of a device file when it is opened. Only copies of
// the descriptor have the same mark. The mark consists of F_SETOWN with the number of this process, and
// F_SETSIG with a signal number that the entry keeps (fcntl(2)). Without O_ASYNC neither has any other
// effect. An entry is valid if
// - the calling process opened the file (getpid(2): a vfork child is another process),
// - the descriptor is the placeholder's character device,
// - the descriptor has the entry's mark.
//
// The descriptor of the connection manager is a pipe (provider/rdma_cm). It needs no mark, because its
// inode is unique. A forked child starts with an empty table: the kernel wipes it (MADV_WIPEONFORK, Linux
// 4.14).
//
// All functions are lock-free and async-signal-safe, and preserve errno.
#pragma once

#include <cstddef>

#include "boundary/claim.h"

namespace verbena {

// Creates the table of this process. Without a table, no descriptor is a device file. Called once, before
// main.
void prepare_descriptors();

// Enters `fd`, a device file that has just been opened. `fd` is not entered in a vfork child, or if 4,096
// device files are open. Then it cannot be claimed, and commands on it fail with ENOSPC.
void adopt_descriptor(int fd);

// Enters `fd`, the end of a new pipe that represents a device file, with this handler. False: not entered,
// for the same reasons, or because `fd` is not a pipe.
bool adopt_pipe(int fd, const verbena_boundary_handler& handler);

// May this process open device files? False in a vfork child, and without a table.
bool may_adopt();

// Is `fd` a descriptor that adopt_pipe() has entered, or a copy of one? The entry is verified.
bool is_pipe_of_device(int fd);

// `copy` has just been made from `fd` by dup(2) or a similar call. If `fd` is a device file, `copy`
// becomes one with the same handler.
void inherit_descriptor(int fd, int copy);

// Might `fd` be a device file? This costs one load of the table's word, and is false for nearly every
// descriptor of a program.
bool may_be_device(int fd);

// The handler of `fd`, after the entry has been verified. False: there is none, and the kernel gets the call.
bool find_handler(int fd, verbena_boundary_handler* out);

// verbena_boundary_claim and verbena_boundary_release (claim.h). If the file of `fd` has been claimed
// before, the new claim is for this descriptor only. In this way ibv_import_device(3) makes a second
// context of the same file.
int claim_descriptor(int fd, const verbena_boundary_handler& handler);
void release_descriptor(int fd);

}  // namespace verbena
