// SPDX-License-Identifier: BSD-2-Clause
#include "cm/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

namespace verbena::cm {
namespace {

constexpr int kBacklog = 1024;

// sun_path holds 108 bytes. A longer path is reached through a descriptor of the folder.
class Name {
 public:
  explicit Name(const std::string& folder) {
    address_.sun_family = AF_UNIX;
    std::string path = folder + "/cm";
    if (path.size() >= sizeof address_.sun_path) {
      folder_ =
          static_cast<int>(syscall(SYS_openat, AT_FDCWD, folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
      if (folder_ < 0) error_ = errno;
      path = "/proc/self/fd/" + std::to_string(folder_) + "/cm";
    }
    std::memcpy(address_.sun_path, path.c_str(), path.size() + 1);
  }
  Name(const Name&) = delete;
  Name& operator=(const Name&) = delete;
  ~Name() {
    if (folder_ >= 0) syscall(SYS_close, folder_);
  }
  int error() const { return error_; }
  const sockaddr_un* get() const { return &address_; }

 private:
  sockaddr_un address_{};
  int folder_ = -1;
  int error_ = 0;
};

long new_socket() { return syscall(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); }

bool same_user(int fd) {
  ucred credentials;
  socklen_t size = sizeof credentials;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0 && credentials.uid == geteuid();
}

}  // namespace

int Socket::take(long fd) {
  if (fd < 0) return errno;
  struct stat status;
  if (fstat(static_cast<int>(fd), &status) != 0) return errno;
  close();
  fd_ = static_cast<int>(fd);
  device_ = status.st_dev;
  inode_ = status.st_ino;
  return 0;
}

bool Socket::verified() const {
  struct stat status;
  return fd_ >= 0 && fstat(fd_, &status) == 0 && status.st_dev == device_ && status.st_ino == inode_;
}

void Socket::close() {
  if (verified()) syscall(SYS_close, fd_);
  fd_ = -1;
}

void Socket::close_in_child() const {
  if (verified()) syscall(SYS_close, fd_);
}

int Socket::listen_in(const std::string& folder) {
  const Name name(folder);
  if (name.error() != 0) return name.error();
  if (int error = take(new_socket()); error != 0) return error;
  unlink(name.get()->sun_path);  // of a service that ended here before
  if (bind(fd_, reinterpret_cast<const sockaddr*>(name.get()), sizeof *name.get()) == 0 &&
      ::listen(fd_, kBacklog) == 0)
    return 0;
  const int error = errno;
  close();
  return error;
}

int Socket::connect_to(const std::string& folder) {
  const Name name(folder);
  if (name.error() != 0) return name.error();
  if (int error = take(new_socket()); error != 0) return error;
  if (syscall(SYS_connect, fd_, name.get(), sizeof *name.get()) == 0 && same_user(fd_)) return 0;
  const int error = errno != 0 ? errno : EPERM;
  close();
  return error;
}

int Socket::accept_from(const Socket& listener) {
  for (;;) {
    if (!listener.verified()) return EBADF;
    const long fd = syscall(SYS_accept4, listener.fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (fd < 0) return errno;
    if (same_user(static_cast<int>(fd))) return take(fd);
    syscall(SYS_close, fd);
  }
}

int Socket::send(std::span<const uint8_t> message) const {
  for (;;) {
    if (!verified()) return EBADF;
    if (syscall(SYS_sendto, fd_, message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT, nullptr, 0) >=
        0)
      return 0;
    if (errno != EINTR) return errno;
  }
}

ssize_t Socket::receive(std::span<uint8_t> room) const {
  // If the peer has closed with unread messages in its queue, the kernel reports ECONNRESET once, before the
  // messages in our queue.
  for (int attempt = 0; attempt < 4; ++attempt) {
    if (!verified()) return -EBADF;
    const long got =
        syscall(SYS_recvfrom, fd_, room.data(), room.size(), MSG_DONTWAIT | MSG_TRUNC, nullptr, nullptr);
    if (got >= 0) return got;
    if (errno != EINTR && errno != ECONNRESET) return -errno;
  }
  return -ECONNRESET;
}

}  // namespace verbena::cm
