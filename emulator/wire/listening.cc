// SPDX-License-Identifier: BSD-2-Clause
#include "wire/listening.h"

#include <errno.h>
#include <unistd.h>

#include <cstring>

#include "fabric/descriptor.h"
#include "fabric/problem.h"

namespace verbena::wire {
namespace {

// Connections that the kernel keeps for a process that is not scheduled; net.core.somaxconn may allow fewer.
// Beyond these a peer that connects hears nothing for a second (tcp(7)).
constexpr int kBacklog = 4096;

// Binds with SO_REUSEPORT, as the listeners of a node do, and with SO_REUSEADDR, so that old connections that
// the kernel still remembers do not count. `anywhere`: also at an address that the machine does not have
// (IP_FREEBIND, ip(7)).
int bind_at(const NetAddress& address, uint16_t port, bool alone, bool anywhere, int* out) {
  sockaddr_storage where;
  const socklen_t size = address.to_socket_address(port, &where);
  const int fd = socket(where.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  const int on = 1;
  if (anywhere && where.ss_family == AF_INET) setsockopt(fd, IPPROTO_IP, IP_FREEBIND, &on, sizeof on);
  if (anywhere && where.ss_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_FREEBIND, &on, sizeof on);
  int error = 0;
  if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      (!alone && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) != 0) ||
      (where.ss_family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) != 0) ||
      bind(fd, reinterpret_cast<const sockaddr*>(&where), size) != 0) {
    error = errno;
    close(fd);
    return error;
  }
  *out = fd;
  return 0;
}

}  // namespace

int listen_at(const NetAddress& address, uint16_t port, int* fd) {
  int bound = -1;
  if (const int error = bind_at(address, port, false, true, &bound); error != 0) return error;
  if (listen(bound, kBacklog) == 0) {
    *fd = bound;
    return 0;
  }
  const int error = errno;
  close(bound);
  return error;
}

int could_listen_at(const NetAddress& address, uint16_t port, bool alone, std::string* problem) {
  const Descriptor bound{[&] {
    int fd = -1;
    errno = bind_at(address, port, alone, false, &fd);
    return fd;
  }()};
  if (bound.fd >= 0) return 0;
  const int error = errno;
  const std::string where = address.text(port);
  if (error == EADDRNOTAVAIL)
    return fail(error, problem,
                address.text() + " is not an address of this machine (ip address shows them)");
  if (error == EADDRINUSE)
    return fail(error, problem,
                "port " + where +
                    " is taken by another program (ss -tlnp shows which): end it, or give all nodes of the "
                    "fabric another one with --port");
  return fail_errno(error, problem, "cannot listen at " + where);
}

}  // namespace verbena::wire
