// SPDX-License-Identifier: BSD-2-Clause
//
// System calls that the boundary makes for itself. They bypass the hooks of all libraries, including its own.
// Each returns the result of the system call, or the negated errno. They
// - are async-signal-safe,
// - are not cancellation points,
// - preserve errno.
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

// From the kernel, not from memory: a vfork child shares its parent's memory, but has its own process number.
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
