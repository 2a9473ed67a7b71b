// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cstddef>

#include "fabric/descriptor.h"

namespace verbena {

inline constexpr size_t kMostPassed = 2;  // descriptors in one message

// Sends `size` bytes and `count` descriptors (SCM_RIGHTS, unix(7)) over a unix socket. `flags` as of
// sendmsg(2); no signal is raised. 0, or sendmsg's errno; never EINTR.
int pass_fds(int socket, const void* data, size_t size, const int* descriptors, size_t count,
                     int flags);

// Takes a message of at most `size` bytes from a unix socket that has SO_PASSCRED, without waiting. *passed:
// the descriptor that came along, close-on-exec; none if there was none. The length, or -1 and errno: what
// recvmsg(2) says, never EINTR; EPERM, it is not from this user, and EMSGSIZE, it is longer: then it is gone.
ssize_t receive_attached(int socket, void* data, size_t size, Descriptor* passed);

}  // namespace verbena
