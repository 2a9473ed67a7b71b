// SPDX-License-Identifier: BSD-2-Clause
//
// Descriptors of connections that a forked child must not have: as long as it has one, the other end does not
// learn that the parent has closed it, and a listening one would be given connections that nobody serves.
// (exec closes them by itself.) Any thread; no lock, so that a fork in the middle of anything is harmless.
#pragma once

namespace verbena {

// From making `fd` to just before closing it or giving it away. Of descriptors from 65536 on nothing is
// remembered.
void keep_from_children(int fd);
void no_longer_keep(int fd);

// In a forked child.
void close_parent_descriptors();

}  // namespace verbena
