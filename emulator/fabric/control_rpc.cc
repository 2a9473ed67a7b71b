// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/control_rpc.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstring>

#include "fabric/descriptor.h"
#include "fabric/fd_passing.h"
#include "fabric/unix_address.h"

namespace verbena {
namespace {

constexpr const char* kSocketName = "requests";
constexpr int kAtATime = 64;

}  // namespace

int listen_for_requests(const std::string& folder) {
  UnixAddress address;
  if (int error = address.set(folder, kSocketName); error != 0) {
    errno = error;
    return -1;
  }
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  const int on = 1;
  if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0 ||
      bind(fd, address.get(), UnixAddress::size()) != 0) {
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
  }
  return fd;
}

void serve_requests(int listener, ServeRequest handler, void* context) {
  for (int i = 0; i < kAtATime; ++i) {
    std::byte request[kMaxMessage], reply[kMaxMessage];
    Descriptor to;
    const ssize_t got = receive_attached(listener, request, sizeof request, &to);
    if (got < 0 && errno != EPERM && errno != EMSGSIZE) return;
    if (got < 0 || to.fd < 0) continue;
    const size_t size = handler(context, request, static_cast<size_t>(got), reply, to);
    if (size != 0 && to.fd >= 0) send(to.fd, reply, size, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
}

int send_request(const std::string& folder, const void* request, size_t size, std::byte* reply,
                 size_t* reply_size, int timeout_ms) {
  UnixAddress address;
  if (int error = address.set(folder, kSocketName); error != 0) return error;
  Descriptor asking(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (asking.fd < 0) return errno;
  const timeval timeout{timeout_ms / 1000, timeout_ms % 1000 * 1000};
  setsockopt(asking.fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
  if (connect(asking.fd, address.get(), UnixAddress::size()) != 0) return errno;
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return errno;
  Descriptor here(pair[0]), there(pair[1]);
  if (int error = pass_fds(asking.fd, request, size, &there.fd, 1, 0); error != 0)
    return error == EAGAIN || error == EWOULDBLOCK ? ETIMEDOUT : error;
  there.reset();  // this process keeps no copy, so that the end of the other process closes the last one
  pollfd readable{here.fd, POLLIN, 0};
  int ready;
  while ((ready = poll(&readable, 1, timeout_ms)) < 0 && errno == EINTR) {
  }
  if (ready == 0) return ETIMEDOUT;
  const ssize_t got = recv(here.fd, reply, kMaxMessage, MSG_DONTWAIT);
  if (got <= 0) return ECONNREFUSED;
  *reply_size = static_cast<size_t>(got);
  return 0;
}

int offer(const std::string& folder, const void* message, size_t size, int descriptor) {
  UnixAddress address;
  if (int error = address.set(folder, kSocketName); error != 0) return error;
  const Descriptor sending(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (sending.fd < 0) return errno;
  if (connect(sending.fd, address.get(), UnixAddress::size()) != 0) return errno;
  const int error = pass_fds(sending.fd, message, size, &descriptor, 1, MSG_DONTWAIT);
  return error == EWOULDBLOCK ? EAGAIN : error;
}

}  // namespace verbena
