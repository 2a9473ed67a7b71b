// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/segment_passing.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>

#include "fabric/fd_passing.h"
#include "fabric/unix_address.h"
#include "no_cancellation.h"

namespace verbena {
namespace {

constexpr const char* kSocketName = "segment";

bool same_user(int socket_fd, int32_t* pid = nullptr) {
  ucred credentials;
  socklen_t size = sizeof credentials;
  if (getsockopt(socket_fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return false;
  if (pid != nullptr) *pid = credentials.pid;
  return credentials.uid == geteuid();
}

void pass_segment(int client, int segment_fd, int memory_fd) {
  const char count = memory_fd >= 0 ? 2 : 1;
  const int fds[] = {segment_fd, memory_fd};
  pass_fds(client, &count, 1, fds, static_cast<size_t>(count), MSG_DONTWAIT);
}

}  // namespace

int listen_for_peers(const std::string& folder) {
  UnixAddress address;
  if (int error = address.set(folder, kSocketName); error != 0) {
    errno = error;
    return -1;
  }
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  if (bind(fd, address.get(), UnixAddress::size()) != 0 || listen(fd, 256) != 0) {
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
  }
  return fd;
}

bool serve_peers(int listener, int segment_fd, int memory_fd) {
  for (int served = 0; served < 64; ++served) {
    const int client = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      return errno != EMFILE && errno != ENFILE;
    }
    if (same_user(client)) pass_segment(client, segment_fd, memory_fd);
    close(client);
  }
  return true;
}

int SegmentRequest::begin(const std::string& folder) {
  UnixAddress address;
  if (int error = address.set(folder, kSocketName); error != 0) return error;
  socket_.reset(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket_.fd < 0) return errno;
  if (connect(socket_.fd, address.get(), UnixAddress::size()) != 0) return errno;
  return same_user(socket_.fd, &pid_) ? 0 : EPROTO;
}

void SegmentRequest::wait(int timeout_ms) const {
  pollfd readable{socket_.fd, POLLIN, 0};
  poll(&readable, 1, timeout_ms);
}

int SegmentRequest::take(PassedSegment* out) const {
  char count = 0;
  iovec data{&count, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = recvmsg(socket_.fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (got < 0) return errno == ECONNRESET ? ECONNREFUSED : errno;
  const cmsghdr* header = got > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header == nullptr && (message.msg_flags & MSG_CTRUNC) != 0) return EMFILE;
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return got == 0 ? ECONNREFUSED : EPROTO;
  int fds[2] = {-1, -1};
  const size_t came = (header->cmsg_len - CMSG_LEN(0)) / sizeof *fds;
  std::memcpy(fds, CMSG_DATA(header), came * sizeof *fds);
  // If this process has not enough free descriptors, the kernel drops the rest (unix(7), MSG_CTRUNC).
  if (came != static_cast<size_t>(count)) {
    for (const int passed : fds)
      if (passed >= 0) close(passed);
    return EMFILE;
  }
  *out = {fds[0], fds[1], pid_};
  return 0;
}

int ask_for_segment(const std::string& folder, int timeout_ms, PassedSegment* out) {
  const NoCancellation guard;  // the first message to a process comes here, too
  SegmentRequest request;
  int error = request.begin(folder);
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + std::chrono::milliseconds(timeout_ms);
  while (error == 0 && (error = request.take(out)) == EAGAIN) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    if (left <= 0) break;
    request.wait(static_cast<int>(left));
    error = 0;
  }
  return error == EAGAIN ? ETIMEDOUT : error;
}

}  // namespace verbena
