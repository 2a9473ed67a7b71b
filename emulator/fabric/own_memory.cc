// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/own_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace verbena {
namespace {

int populate_page_of(uintptr_t at, bool writable) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  return populate(at & ~(page - 1), page, writable);
}

// A kernel before 5.14 cannot. It returns EINVAL for that as well as for memory without the permission
// (madvise(2)).
bool kernel_populates() {
  static const char there = 1;
  static const bool known = populate_page_of(reinterpret_cast<uintptr_t>(&there), false) == 0;
  return known;
}

}  // namespace

int populate(uintptr_t first_page, size_t length, bool writable) {
  while (syscall(SYS_madvise, first_page, length, writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) != 0)
    if (errno != EINTR && errno != EAGAIN) return errno;
  return 0;
}

bool is_refusal(int error) { return error == EPERM || error == ENOSYS || error == EACCES; }

bool is_reachable(uintptr_t at, bool writable) {
  char byte = 0;
  iovec here{&byte, 1}, there{reinterpret_cast<void*>(at), 1};
  if (syscall(SYS_process_vm_readv, getpid(), &here, 1UL, &there, 1UL, 0UL) == 1 &&
      (!writable || syscall(SYS_process_vm_writev, getpid(), &here, 1UL, &there, 1UL, 0UL) == 1))
    return true;
  if (!is_refusal(errno)) return errno != EFAULT;
  if (kernel_populates()) return populate_page_of(at, writable) == 0;
  return copy_by_pipe(&byte, there.iov_base, 1) == 0 &&
         (!writable || copy_by_pipe(there.iov_base, &byte, 1) == 0);
}

int copy_by_pipe(void* to, const void* from, size_t size) {
  // A new pipe for each copy: the program may close descriptors that it does not own, and a forked child
  // shares its parent's pipe.
  int pipe[2];
  if (syscall(SYS_pipe2, pipe, O_CLOEXEC | O_NONBLOCK) != 0) return errno;
  int error = 0;
  for (size_t done = 0; done < size && error == 0;) {
    long filled = syscall(SYS_write, pipe[1], static_cast<const char*>(from) + done, size - done);
    if (filled < 0 && errno != EINTR) error = errno;
    while (filled > 0 && error == 0) {
      const long drained = syscall(SYS_read, pipe[0], static_cast<char*>(to) + done, filled);
      if (drained < 0 && errno != EINTR) error = errno;
      filled -= std::max(drained, 0L);
      done += static_cast<size_t>(std::max(drained, 0L));
    }
  }
  syscall(SYS_close, pipe[0]);
  syscall(SYS_close, pipe[1]);
  return error;
}

}  // namespace verbena
