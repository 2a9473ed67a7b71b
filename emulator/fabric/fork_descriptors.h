// SPDX-License-Identifier: BSD-2-Clause
//
// Connection descriptors that a forked child must not keep. While a child has a connection open, the other
// end does not learn that the parent has closed it. While a child has a listening socket open, the kernel
// gives it connections that no thread serves. (exec closes them anyway.) Any thread. Lock-free, so that a
// fork at any point is harmless.
#pragma once

namespace verbena {

// keep_from_children(): right after `fd` is opened. no_longer_keep(): just before it is closed or given away.
// Descriptors from 65536 on are not tracked.
void keep_from_children(int fd);
void no_longer_keep(int fd);

// In a forked child. A number that is another file by now is left alone.
void close_parent_descriptors();

}  // namespace verbena
