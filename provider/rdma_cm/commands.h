// SPDX-License-Identifier: BSD-2-Clause
//
// The commands of <rdma/rdma_user_cm.h>, ABI version 4, as ucma_write in drivers/infiniband/core/ucma.c takes
// them.
#pragma once

#include <sys/types.h>

#include "rdma_cm/state.h"

namespace verbena::rdma_cm {

// Answers one command written to `file`: 0, kAskForToken (call.h) or an errno.
//   EINVAL      shorter than its header, or than the header says; an unknown command; `in` too small for it
//   EFAULT      the command, or where the response is to go, is not the program's memory
//   ENOSYS      GET_OPTION, which the kernel does not have either
//   ENOSPC      `out` too small
//   EBADF       the file was opened for reading only, or is closed
//   ENOENT, EINVAL, EIO: the id, as ContextInUse::find; otherwise what the command itself answers (cm.h)
// The kernel does not compare `in` with what most commands need and reads past the end of short ones; here
// that is EINVAL. Nothing is thrown; no cancellation point; errno is left alone.
int run_command(State& state, const std::shared_ptr<File>& file, const void* command, size_t length,
                bool has_token);

}  // namespace verbena::rdma_cm
