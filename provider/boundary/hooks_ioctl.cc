// SPDX-License-Identifier: BSD-2-Clause
//
// ioctl(2). On the placeholder every ioctl fails with ENOTTY. libibverbs then sends its commands by
// write(2). One command has no write(2) form: the allocation of the async descriptor of an imported device
// (ibv_import_device(3)).
#include <sys/ioctl.h>

#include <cstdarg>

#include "boundary/descriptors.h"
#include "boundary/real.h"

namespace verbena {
namespace {

__attribute__((noinline)) int control_device(int fd, unsigned long request, void* argument) {
  verbena_boundary_handler handler;
  if (!find_handler(fd, &handler) || handler.control == nullptr) return real_ioctl(fd, request, argument);
  return handler.control(handler.owner, request, argument);
}

}  // namespace

// The argument of ioctl(2) is an int or a pointer. Both are passed on as a pointer, as libc does.
VERBENA_HOOK int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list arguments;
  va_start(arguments, request);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  if (may_be_device(fd)) [[unlikely]]
    return control_device(fd, request, argument);
  return real_ioctl(fd, request, argument);
}

}  // namespace verbena
