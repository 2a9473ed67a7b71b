// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/fifo.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

namespace verbena {

FifoEnd::FifoEnd(FifoEnd&& other) noexcept { *this = std::move(other); }

FifoEnd& FifoEnd::operator=(FifoEnd&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(device_, other.device_);
  std::swap(inode_, other.inode_);
  return *this;
}

int FifoEnd::make(int at, const char* name) {
  if (mkfifoat(at, name, 0600) != 0) return errno;
  const int error = open(at, name);
  if (error != 0) unlinkat(at, name, 0);
  return error;
}

int FifoEnd::open(int at, const char* name) {
  // O_RDWR: neither ENXIO without a reader nor EPIPE when the reader is gone (fifo(7)).
  const long fd = syscall(SYS_openat, at, name, O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return errno;
  struct stat status;
  if (fstat(static_cast<int>(fd), &status) != 0 || !S_ISFIFO(status.st_mode)) {
    syscall(SYS_close, fd);
    return EPROTO;
  }
  close();
  fd_ = static_cast<int>(fd);
  device_ = status.st_dev;
  inode_ = status.st_ino;
  return 0;
}

void FifoEnd::close() {
  if (fd_ >= 0 && verified()) syscall(SYS_close, fd_);
  fd_ = -1;
}

bool FifoEnd::is_same_pipe(int fd) const {
  struct stat status;
  return fd >= 0 && fstat(fd, &status) == 0 && status.st_dev == device_ && status.st_ino == inode_;
}

bool FifoEnd::is_abandoned() const {
  struct stat status;
  return fd_ < 0 || fstat(fd_, &status) != 0 || status.st_nlink == 0;
}

bool FifoEnd::verified() const { return is_same_pipe(fd_); }

int FifoEnd::write(const void* record, size_t size) const {
  if (!verified()) return EBADF;
  for (;;) {
    if (syscall(SYS_write, fd_, record, size) == static_cast<long>(size)) return 0;
    if (errno != EINTR) return errno;
  }
}

bool FifoEnd::read(void* record, size_t size) const {
  if (!verified()) return false;
  // An empty FIFO is no error of the calling verb: librdmacm destroys its CQs before the caller reads the
  // errno of the failure they were created for (rdma_create_qp_ex in cma.c).
  const int before = errno;
  for (;;) {
    if (syscall(SYS_read, fd_, record, size) == static_cast<long>(size)) return true;
    if (errno == EINTR) continue;
    if (errno == EAGAIN) errno = before;
    return false;
  }
}

int FifoEnd::open_reader(const std::string& path) const {
  // open(2), and not a system call of our own: ThreadSanitizer in a program must see the descriptor.
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return -1;
  const int error = !is_same_pipe(fd) ? EPROTO : fcntl(fd, F_SETFL, O_RDONLY) != 0 ? errno : 0;
  if (error == 0) return fd;
  ::close(fd);
  errno = error;
  return -1;
}

}  // namespace verbena
