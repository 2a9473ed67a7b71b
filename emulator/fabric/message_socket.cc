// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/message_socket.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "fabric/fork_descriptors.h"
#include "fabric/unix_address.h"

namespace verbena {
namespace {

// Control data of a message with kMaxPassed descriptors.
struct PassedBytes {
  alignas(cmsghdr) char bytes[CMSG_SPACE(MessageSocket::kMaxPassed * sizeof(int))] = {};
};

bool credentials_of_peer(int fd, ucred* credentials) {
  socklen_t size = sizeof *credentials;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, credentials, &size) == 0;
}

bool has_same_user(int fd) {
  ucred credentials;
  return credentials_of_peer(fd, &credentials) && credentials.uid == geteuid();
}

void attach(std::span<const int> passed, PassedBytes* control, msghdr* message) {
  message->msg_control = control->bytes;
  message->msg_controllen = CMSG_SPACE(passed.size_bytes());
  cmsghdr* header = CMSG_FIRSTHDR(message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(passed.size_bytes());
  std::memcpy(CMSG_DATA(header), passed.data(), passed.size_bytes());
}

// Descriptors beyond `passed` are closed.
void detach(msghdr* message, std::span<Descriptor> passed) {
  size_t next = 0;
  for (cmsghdr* header = CMSG_FIRSTHDR(message); header != nullptr; header = CMSG_NXTHDR(message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i, ++next) {
      Descriptor came;
      std::memcpy(&came.fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      if (next < passed.size()) passed[next].reset(came.release());
    }
  }
}

}  // namespace

MessageSocket::MessageSocket(MessageSocket&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), device_(other.device_), inode_(other.inode_) {}

MessageSocket& MessageSocket::operator=(MessageSocket&& other) noexcept {
  if (this == &other) return *this;
  close();
  fd_ = std::exchange(other.fd_, -1);
  device_ = other.device_;
  inode_ = other.inode_;
  return *this;
}

int MessageSocket::take(long fd) {
  if (fd < 0) return errno;
  struct stat status;
  if (fstat(static_cast<int>(fd), &status) != 0) return errno;
  close();
  fd_ = static_cast<int>(fd);
  device_ = status.st_dev;
  inode_ = status.st_ino;
  keep_from_children(fd_);
  return 0;
}

bool MessageSocket::verified() const {
  struct stat status;
  return fd_ >= 0 && fstat(fd_, &status) == 0 && status.st_dev == device_ && status.st_ino == inode_;
}

void MessageSocket::close() {
  if (fd_ >= 0) no_longer_keep(fd_);
  if (verified()) syscall(SYS_close, fd_);
  fd_ = -1;
}

void MessageSocket::close_in_child() const {
  if (verified()) syscall(SYS_close, fd_);
}

int MessageSocket::listen_at(const sockaddr* address, unsigned size, int backlog) {
  if (const int error = take(syscall(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      error != 0)
    return error;
  if (bind(fd_, address, size) == 0 && ::listen(fd_, backlog) == 0) return 0;
  const int error = errno;
  close();
  return error;
}

int MessageSocket::listen_in(const std::string& folder, const char* name, int backlog) {
  UnixAddress address;
  if (const int error = address.set(folder, name); error != 0) return error;
  return listen_at(address.get(), UnixAddress::size(), backlog);
}

int MessageSocket::listen_as(const std::string& abstract_name, int backlog) {
  const AbstractAddress address(abstract_name);
  return listen_at(address.get(), address.size(), backlog);
}

int MessageSocket::connect_at(const sockaddr* address, unsigned size, int wait_ms) {
  const int type = SOCK_SEQPACKET | SOCK_CLOEXEC | (wait_ms > 0 ? 0 : SOCK_NONBLOCK);
  if (const int error = take(syscall(SYS_socket, AF_UNIX, type, 0)); error != 0) return error;
  const timeval timeout{wait_ms / 1000, wait_ms % 1000 * 1000};
  if (wait_ms > 0) setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
  long result;
  while ((result = syscall(SYS_connect, fd_, address, size)) != 0 && errno == EINTR) {
  }
  if (result == 0 && has_same_user(fd_)) return 0;
  const int error = result == 0 ? EPERM : errno;
  close();
  return error;
}

int MessageSocket::connect_to(const std::string& folder, const char* name, int wait_ms) {
  UnixAddress address;
  if (const int error = address.set(folder, name); error != 0) return error;
  return connect_at(address.get(), UnixAddress::size(), wait_ms);
}

int MessageSocket::connect_to_abstract(const std::string& abstract_name, int wait_ms) {
  const AbstractAddress address(abstract_name);
  return connect_at(address.get(), address.size(), wait_ms);
}

int MessageSocket::accept_from(const MessageSocket& listener) {
  for (;;) {
    if (!listener.verified()) return EBADF;
    const long fd = syscall(SYS_accept4, listener.fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (fd < 0) return errno;
    if (has_same_user(static_cast<int>(fd))) return take(fd);
    syscall(SYS_close, fd);
  }
}

int MessageSocket::send(std::span<const uint8_t> message, std::span<const int> passed) const {
  if (passed.size() > kMaxPassed) return EINVAL;
  iovec part{const_cast<uint8_t*>(message.data()), message.size()};
  PassedBytes control;
  msghdr all{};
  all.msg_iov = &part;
  all.msg_iovlen = 1;
  if (!passed.empty()) attach(passed, &control, &all);
  for (;;) {
    if (!verified()) return EBADF;
    if (syscall(SYS_sendmsg, fd_, &all, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return 0;
    if (errno != EINTR) return errno;
  }
}

ssize_t MessageSocket::receive(std::span<uint8_t> room, std::span<Descriptor> passed, bool* lost) const {
  return receive_with(0, room, passed, lost);
}

ssize_t MessageSocket::peek(std::span<uint8_t> room) const {
  return receive_with(MSG_PEEK, room, {}, nullptr);
}

ssize_t MessageSocket::receive_with(int flags, std::span<uint8_t> room, std::span<Descriptor> passed,
                                    bool* lost) const {
  // If the peer has closed with unread messages in its queue, the kernel reports ECONNRESET once, before the
  // messages in our queue. The end of the stream is asked for twice: if the peer sends and closes during the
  // call, the kernel may have found the queue empty and then the socket shut down (net/unix/af_unix.c,
  // unix_dgram_recvmsg()).
  bool ended = false;
  for (int attempt = 0; attempt < 4; ++attempt) {
    if (!verified()) return -EBADF;
    iovec part{room.data(), room.size()};
    PassedBytes control;
    msghdr all{};
    all.msg_iov = &part;
    all.msg_iovlen = 1;
    all.msg_control = passed.empty() ? nullptr : control.bytes;  // without room the kernel drops them
    all.msg_controllen = passed.empty() ? 0 : sizeof control.bytes;
    const long got = syscall(SYS_recvmsg, fd_, &all, flags | MSG_DONTWAIT | MSG_TRUNC | MSG_CMSG_CLOEXEC);
    if (got == 0 && !std::exchange(ended, true)) continue;
    if (got >= 0) {
      detach(&all, passed);
      if (lost != nullptr) *lost = (all.msg_flags & MSG_CTRUNC) != 0;
      return got;
    }
    if (errno != EINTR && errno != ECONNRESET) return -errno;
  }
  return -ECONNRESET;
}

void MessageSocket::wait(int timeout_ms) const {
  pollfd readable{fd_, POLLIN, 0};
  const timespec timeout{timeout_ms / 1000, timeout_ms % 1000 * 1'000'000L};
  syscall(SYS_ppoll, &readable, 1, &timeout, nullptr, 0);
}

int32_t MessageSocket::peer_pid() const {
  ucred credentials;
  return verified() && credentials_of_peer(fd_, &credentials) ? credentials.pid : 0;
}

}  // namespace verbena
