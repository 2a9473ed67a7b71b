// SPDX-License-Identifier: BSD-2-Clause
//
// The commands of <rdma/rdma_user_cm.h>, ABI version 4, as in ucma_write (drivers/infiniband/core/ucma.c).
#pragma once

#include <sys/types.h>

#include "rdma_cm/state.h"

namespace verbena::rdma_cm {

// Executes one command written to `file`. Returns 0, kAskForToken (call.h) or an errno:
// - EINVAL: shorter than its header, or than the header says; an unknown command; `in` too small for it.
// - EFAULT: the command or the place of the response is not the program's memory.
// - ENOSYS: GET_OPTION, which the kernel does not have either; RESOLVE_IB_SERVICE.
// - ENOSPC: `out` too small.
// - EBADF: the file was opened for reading only, or is closed.
// - ENOMEM.
// - ENOENT, EINVAL, EIO: the id, as ContextInUse::find.
// - Otherwise the errors of the command itself (cm.h).
// Difference: for most commands the kernel does not check `in`, and reads past the end of short ones. Here
// that is EINVAL. Does not throw. Not a cancellation point. Leaves errno alone.
int run_command(State& state, const std::shared_ptr<File>& file, const void* command, size_t length,
                bool has_token);

}  // namespace verbena::rdma_cm
