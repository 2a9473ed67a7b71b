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

// Receives a message of at most `size` bytes, without waiting, from a unix socket that has SO_PASSCRED.
// *passed: the descriptor that came with it, close-on-exec, or none. Returns the length, or -1 and errno:
// - an error of recvmsg(2), never EINTR,
// - EPERM: the sender is not of this user,
// - EMSGSIZE: the message is longer than `size`.
// After EPERM and EMSGSIZE the message is dropped.
ssize_t receive_attached(int socket, void* data, size_t size, Descriptor* passed);

}  // namespace verbena
