// SPDX-License-Identifier: BSD-2-Clause
//
// System calls that the boundary makes for itself. They bypass the hooks of every library, its own included.
// They are async-signal-safe and no cancellation points, and do not change errno: each returns the system
// call's value, or minus the errno.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>

namespace verbena::kernel {

template <typename... Arguments>
long ask(long number, Arguments... arguments) {
  const int saved = errno;
  long answer = ::syscall(number, arguments...);
  if (answer < 0) answer = -errno;
  errno = saved;
  return answer;
}

// The real one: in a vfork child it differs from the parent's although the memory is the parent's.
inline int process_id() { return static_cast<int>(ask(SYS_getpid)); }

inline long exists(const char* path) { return ask(SYS_faccessat, AT_FDCWD, path, F_OK); }
inline long status(int fd, struct stat* out) { return ask(SYS_fstat, fd, out); }
inline long status(const char* path, struct stat* out) { return ask(SYS_newfstatat, AT_FDCWD, path, out, 0); }
inline long link_status(const char* path, struct stat* out) {
  return ask(SYS_newfstatat, AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}
inline unsigned effective_user() { return static_cast<unsigned>(ask(SYS_geteuid)); }
inline long read_link(const char* path, char* out, size_t size) {
  return ask(SYS_readlinkat, AT_FDCWD, path, out, size);
}
inline long current_directory(char* out, size_t size) { return ask(SYS_getcwd, out, size); }
inline long control(int fd, int command, long argument = 0) { return ask(SYS_fcntl, fd, command, argument); }

}  // namespace verbena::kernel
