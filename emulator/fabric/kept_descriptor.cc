// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/kept_descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>

#include "fabric/fork_descriptors.h"

namespace verbena {

void KeptDescriptor::keep(int fd) {
  close();
  struct stat status;
  if (fd < 0 || fstat(fd, &status) != 0) return;
  fd_ = fd;
  device_ = status.st_dev;
  inode_ = status.st_ino;
  keep_from_children(fd_);
}

bool KeptDescriptor::verified() const {
  struct stat status;
  return fd_ >= 0 && fstat(fd_, &status) == 0 && status.st_dev == device_ && status.st_ino == inode_;
}

void KeptDescriptor::close() {
  if (fd_ < 0) return;
  if (verified()) {
    no_longer_keep(fd_);
    syscall(SYS_close, fd_);
  }
  fd_ = -1;
}

int KeptDescriptor::reopen(int flags) const {
  if (!verified()) return errno = EBADF, -1;
  const std::string link = "/proc/self/fd/" + std::to_string(fd_);
  return open(link.c_str(), flags | O_CLOEXEC);
}

}  // namespace verbena
