// SPDX-License-Identifier: BSD-2-Clause
//
// Opening and closing files that the program may have open as well. Closing any descriptor of a file releases
// the locks that the process holds on it (fcntl(2), "Advisory record locking"), so a thread of ours must not
// close one in the program's table of descriptors.
#pragma once

namespace verbena {

// Calls work(context) with a copy of the process's descriptor table: the descriptors that it opens are closed
// when it returns, the locks of the process stay, and what it maps stays mapped. `work` must not allocate,
// take a lock or throw. Waits until it has returned. False: not called, because the kernel allows no further
// process (EAGAIN, or a filter).
//
// It runs in a process of its own for which the caller waits, as between vfork(2) and exec: the memory is the
// caller's (clone(2), CLONE_VM | CLONE_VFORK without CLONE_FILES). For threads of the emulator, which have
// all signals blocked.
bool with_own_descriptors(void (*work)(void*), void* context);

// The same for a callable.
template <typename Work>
bool with_own_descriptors(Work&& work) {
  return with_own_descriptors([](void* it) { (*static_cast<Work*>(it))(); }, &work);
}

}  // namespace verbena
