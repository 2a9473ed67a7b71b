// SPDX-License-Identifier: BSD-2-Clause
//
// A copy of a device file's descriptor is a device file, too. Python's os.dup needs this, and so do programs
// that pass a copy of cmd_fd to ibv_import_device(3). The same goes for a socket of NETLINK_RDMA.
#include <fcntl.h>
#include <unistd.h>

#include <cstdarg>

#include "boundary/descriptors.h"
#include "boundary/netlink_table.h"
#include "boundary/real.h"

namespace verbena {
namespace {

int inherited(int fd, int copy) {
  if (copy >= 0 && may_be_device(fd)) [[unlikely]]
    inherit_descriptor(fd, copy);
  if (copy >= 0 && may_be_netlink(fd)) [[unlikely]]
    inherit_netlink(fd, copy);
  return copy;
}

// The argument of fcntl(2) is an int or a pointer. Both are passed on as a pointer, as libc does.
template <typename Function>
int control(Real<Function>& real, int fd, int command, void* argument) {
  const int result = real(fd, command, argument);
  return command == F_DUPFD || command == F_DUPFD_CLOEXEC ? inherited(fd, result) : result;
}

}  // namespace

VERBENA_HOOK int dup(int fd) noexcept { return inherited(fd, real_dup(fd)); }

VERBENA_HOOK int dup2(int fd, int copy) noexcept { return inherited(fd, real_dup2(fd, copy)); }

VERBENA_HOOK int dup3(int fd, int copy, int flags) noexcept {
  return inherited(fd, real_dup3(fd, copy, flags));
}

VERBENA_HOOK int fcntl(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  return control(real_fcntl, fd, command, argument);
}

VERBENA_HOOK int fcntl64(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  // glibc has fcntl64 since 2.28.
  return real_fcntl64.exists() ? control(real_fcntl64, fd, command, argument)
                               : control(real_fcntl, fd, command, argument);
}

}  // namespace verbena
