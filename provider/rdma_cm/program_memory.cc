// SPDX-License-Identifier: BSD-2-Clause
#include "rdma_cm/program_memory.h"

#include <errno.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstring>

namespace verbena::rdma_cm {
namespace {

constexpr int kForbidden = -1;

// 0, EFAULT or kForbidden.
int ask_kernel(long call, void* here, void* there, size_t size) {
  const int saved = errno;
  const iovec local = {.iov_base = here, .iov_len = size};
  const iovec remote = {.iov_base = there, .iov_len = size};
  const long moved = syscall(call, getpid(), &local, 1, &remote, 1, 0);
  const int error = errno;
  errno = saved;
  if (moved < 0) return error == EPERM || error == ENOSYS ? kForbidden : EFAULT;
  return static_cast<size_t>(moved) == size ? 0 : EFAULT;
}

}  // namespace

int copy_from_program(void* to, const void* from, size_t size) {
  if (size == 0) return 0;
  const int error = ask_kernel(SYS_process_vm_readv, to, const_cast<void*>(from), size);
  if (error == kForbidden) memcpy(to, from, size);
  return error == kForbidden ? 0 : error;
}

int copy_to_program(uint64_t to, const void* from, size_t size) {
  if (size == 0) return 0;
  if (to > UINTPTR_MAX) return EFAULT;
  void* target = reinterpret_cast<void*>(static_cast<uintptr_t>(to));
  const int error = ask_kernel(SYS_process_vm_writev, const_cast<void*>(from), target, size);
  if (error == kForbidden) memcpy(target, from, size);
  return error == kForbidden ? 0 : error;
}

bool read_if_mapped(void* to, uint64_t from, size_t size) {
  if (from > UINTPTR_MAX) return false;
  return ask_kernel(SYS_process_vm_readv, to, reinterpret_cast<void*>(static_cast<uintptr_t>(from)), size) == 0;
}

}  // namespace verbena::rdma_cm
