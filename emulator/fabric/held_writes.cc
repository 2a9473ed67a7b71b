// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/held_writes.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <initializer_list>

namespace verbena {
namespace {

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1  // since Linux 5.11
#endif

// Not by the program's ioctl(3), which may be a hook.
bool control(int fd, unsigned long request, void* argument) {
  return syscall(SYS_ioctl, fd, request, argument) == 0;
}

}  // namespace

HeldWrites::~HeldWrites() {
  if (fd_ >= 0) syscall(SYS_close, fd_);
}

bool HeldWrites::open() {
  for (const int mode : {0, UFFD_USER_MODE_ONLY}) {
    fd_ = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | mode));
    if (fd_ >= 0) break;
  }
  if (fd_ < 0) return false;
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = UFFD_FEATURE_PAGEFAULT_FLAG_WP;
  return control(fd_, UFFDIO_API, &api);
}

bool HeldWrites::prepare(uint64_t begin, uint64_t length) {
  uffdio_register range{};
  range.range = {begin, length};
  range.mode = UFFDIO_REGISTER_MODE_WP;
  return control(fd_, UFFDIO_REGISTER, &range);
}

bool HeldWrites::hold(uint64_t begin, uint64_t length) {
  uffdio_writeprotect range{};
  range.range = {begin, length};
  range.mode = UFFDIO_WRITEPROTECT_MODE_WP;
  for (int tries = 0; tries < 100; ++tries) {
    if (control(fd_, UFFDIO_WRITEPROTECT, &range)) return true;
    if (errno != EAGAIN && errno != EINTR) break;
  }
  return false;
}

void HeldWrites::release(uint64_t begin, uint64_t length) {
  uffdio_writeprotect range{};
  range.range = {begin, length};
  while (!control(fd_, UFFDIO_WRITEPROTECT, &range) && errno == EAGAIN) {
  }
}

void HeldWrites::wake(uint64_t begin, uint64_t length) {
  uffdio_range range{begin, length};
  control(fd_, UFFDIO_WAKE, &range);
}

}  // namespace verbena
