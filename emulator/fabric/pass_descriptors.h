// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <cstddef>

namespace verbena {

inline constexpr size_t kMostPassed = 2;  // descriptors in one message

// Sends `size` bytes and `count` descriptors (SCM_RIGHTS, unix(7)) over a unix socket. `flags` as of
// sendmsg(2); no signal is raised. 0, or sendmsg's errno; never EINTR.
int pass_descriptors(int socket, const void* data, size_t size, const int* descriptors, size_t count,
                     int flags);

}  // namespace verbena
