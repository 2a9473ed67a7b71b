// SPDX-License-Identifier: BSD-2-Clause
#include "wire/listening.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cstring>

#include "fabric/descriptor.h"
#include "fabric/node.h"
#include "fabric/private_folder.h"
#include "fabric/problem.h"

namespace verbena::wire {
namespace {

constexpr int kBacklog = 512;
constexpr int kLockTries = 1000;
constexpr timespec kLockPause{0, 2'000'000};

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

std::string spelled(const NetAddress& address, uint16_t port) {
  return (address.is_ipv4() ? address.text() : "[" + address.text() + "]") + ":" + std::to_string(port);
}

std::string claim_path(const std::string& folder, const NetAddress& address, uint16_t port) {
  struct stat space {};
  stat("/proc/self/ns/net", &space);
  return folder + "/" + std::to_string(space.st_ino) + "-" + address.text() + "-" + std::to_string(port);
}

std::string read_all(int fd) {
  char text[kMaxNodePath + 1];
  const ssize_t got = pread(fd, text, sizeof text, 0);
  return got > 0 ? std::string(text, static_cast<size_t>(got)) : "";
}

int lock(int fd) {
  for (int i = 0; i < kLockTries; ++i) {
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return 0;
    if (errno != EWOULDBLOCK && errno != EINTR) return errno;
    nanosleep(&kLockPause, nullptr);
  }
  return ETIMEDOUT;
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
  const std::string where = spelled(address, port);
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

int claim(const std::string& node, const NetAddress& address, uint16_t port, std::string* problem) {
  const std::string folder = node.substr(0, node.rfind('/')) + "/ports";
  if (const int error = ensure_private_folder(folder, problem); error != 0) return error;
  const std::string path = claim_path(folder, address, port);
  const Descriptor file{open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)};
  if (file.fd < 0) return fail_errno(errno, problem, path);
  if (const int error = lock(file.fd); error != 0) return fail_errno(error, problem, path);
  const std::string holder = read_all(file.fd);
  if (holder == node) return 0;
  if (!holder.empty() && node_is_inhabited(holder))
    return fail(EADDRINUSE, problem,
                spelled(address, port) + " is listened at by the node " + holder +
                    ", on which processes live: end them, or take another address or port");
  if (ftruncate(file.fd, 0) != 0 ||
      pwrite(file.fd, node.data(), node.size(), 0) != static_cast<ssize_t>(node.size()))
    return fail_errno(errno, problem, path);
  return 0;
}

}  // namespace verbena::wire
