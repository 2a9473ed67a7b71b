// SPDX-License-Identifier: BSD-2-Clause
#include "cm/stream.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "fabric/fork_descriptors.h"

namespace verbena::cm {

void Stream::take(int fd) {
  close();
  struct stat status {};
  fstat(fd, &status);
  fd_ = fd;
  device_ = status.st_dev;
  inode_ = status.st_ino;
}

bool Stream::verified() const {
  struct stat status;
  return fd_ >= 0 && fstat(fd_, &status) == 0 && status.st_dev == device_ && status.st_ino == inode_;
}

void Stream::close() {
  if (fd_ >= 0) no_longer_keep(fd_);
  if (verified()) syscall(SYS_close, fd_);
  fd_ = -1;
  rest_from_ = rest_to_ = filled_ = 0;
}

int Stream::send_rest() {
  while (has_rest()) {
    if (!verified()) return EBADF;
    const long sent = syscall(SYS_sendto, fd_, rest_.data() + rest_from_, rest_to_ - rest_from_,
                              MSG_NOSIGNAL | MSG_DONTWAIT, nullptr, 0);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return errno;
    rest_from_ += static_cast<size_t>(sent);
  }
  return 0;
}

int Stream::send(const Frame& frame) {
  if (const int error = send_rest(); error != 0) return error;
  rest_ = frame;
  rest_from_ = 0;
  rest_to_ = frame.size();
  const int error = send_rest();
  if (error == 0 || (error == EAGAIN && rest_from_ > 0)) return 0;
  rest_from_ = rest_to_ = 0;
  return error;
}

void Stream::end_sending() {
  if (verified()) syscall(SYS_shutdown, fd_, SHUT_WR);
}

ssize_t Stream::receive(std::span<uint8_t> room) {
  while (filled_ < partial_.size()) {
    if (!verified()) return -EBADF;
    const long got = syscall(SYS_recvfrom, fd_, partial_.data() + filled_, partial_.size() - filled_,
                             MSG_DONTWAIT, nullptr, nullptr);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -errno;
    if (got == 0) return 0;
    filled_ += static_cast<size_t>(got);
  }
  filled_ = 0;
  std::copy_n(partial_.begin(), std::min(room.size(), partial_.size()), room.begin());
  return static_cast<ssize_t>(partial_.size());
}

}  // namespace verbena::cm
