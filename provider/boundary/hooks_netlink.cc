// SPDX-License-Identifier: BSD-2-Clause
//
// Sockets of NETLINK_RDMA (netlink.h). The other calls on them, bind(2) and poll(2) for example, need no
// hook.
#include <linux/netlink.h>
#include <sys/socket.h>
#include <unistd.h>

#include "boundary/environment.h"
#include "boundary/netlink.h"
#include "boundary/real.h"

namespace verbena {
namespace {

// A call on `fd`: `ours` with the socket if it is one of NETLINK_RDMA, else `others`.
template <typename Ours, typename Others>
inline auto on_socket(int fd, Ours&& ours, Others&& others) {
  if (may_be_netlink(fd)) [[unlikely]] {
    if (NetlinkSocket* socket = find_netlink(fd); socket != nullptr) return ours(*socket);
  }
  return others();
}

ssize_t send_bytes(NetlinkSocket& socket, int fd, const void* data, size_t length, int flags,
                   const sockaddr* to, socklen_t size) {
  iovec part = {.iov_base = const_cast<void*>(data), .iov_len = length};
  msghdr message = {};
  message.msg_name = const_cast<sockaddr*>(to);
  message.msg_namelen = size;
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  return send_netlink(socket, fd, message, flags);
}

ssize_t receive_bytes(NetlinkSocket& socket, int fd, void* data, size_t length, int flags, sockaddr* from,
                      socklen_t* size) {
  iovec part = {.iov_base = data, .iov_len = length};
  msghdr message = {};
  message.msg_name = size != nullptr ? from : nullptr;
  message.msg_namelen = size != nullptr ? *size : 0;
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  const ssize_t received = receive_netlink(socket, fd, &message, flags);
  if (received >= 0 && from != nullptr && size != nullptr) *size = message.msg_namelen;
  return received;
}

}  // namespace

VERBENA_HOOK int socket(int domain, int type, int protocol) noexcept {
  if (domain == AF_NETLINK && protocol == NETLINK_RDMA && has_node()) return open_netlink(type);
  return real_socket(domain, type, protocol);
}

VERBENA_HOOK int connect(int fd, const sockaddr* address, socklen_t size) {
  return on_socket(
      fd, [&](NetlinkSocket&) { return connect_netlink(fd, address, size); },
      [&] { return real_connect(fd, address, size); });
}

VERBENA_HOOK int getsockopt(int fd, int level, int name, void* value, socklen_t* size) noexcept {
  const int result = real_getsockopt(fd, level, name, value, size);
  if (result == 0 && level == SOL_SOCKET && name == SO_PROTOCOL && *size == sizeof(int) &&
      may_be_netlink(fd) && find_netlink(fd) != nullptr)
    *static_cast<int*>(value) = NETLINK_RDMA;
  return result;
}

VERBENA_HOOK ssize_t send(int fd, const void* data, size_t length, int flags) {
  return on_socket(
      fd, [&](NetlinkSocket& ours) { return send_bytes(ours, fd, data, length, flags, nullptr, 0); },
      [&] { return real_send(fd, data, length, flags); });
}

VERBENA_HOOK ssize_t sendto(int fd, const void* data, size_t length, int flags, const sockaddr* to,
                            socklen_t size) {
  return on_socket(
      fd, [&](NetlinkSocket& ours) { return send_bytes(ours, fd, data, length, flags, to, size); },
      [&] { return real_sendto(fd, data, length, flags, to, size); });
}

VERBENA_HOOK ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  return on_socket(
      fd, [&](NetlinkSocket& ours) { return send_netlink(ours, fd, *message, flags); },
      [&] { return real_sendmsg(fd, message, flags); });
}

VERBENA_HOOK ssize_t read(int fd, void* data, size_t length) {
  return on_socket(
      fd, [&](NetlinkSocket& ours) { return receive_bytes(ours, fd, data, length, 0, nullptr, nullptr); },
      [&] { return real_read(fd, data, length); });
}

VERBENA_HOOK ssize_t recv(int fd, void* data, size_t length, int flags) {
  return on_socket(
      fd, [&](NetlinkSocket& ours) { return receive_bytes(ours, fd, data, length, flags, nullptr, nullptr); },
      [&] { return real_recv(fd, data, length, flags); });
}

VERBENA_HOOK ssize_t recvfrom(int fd, void* data, size_t length, int flags, sockaddr* from, socklen_t* size) {
  return on_socket(
      fd, [&](NetlinkSocket& ours) { return receive_bytes(ours, fd, data, length, flags, from, size); },
      [&] { return real_recvfrom(fd, data, length, flags, from, size); });
}

VERBENA_HOOK ssize_t recvmsg(int fd, msghdr* message, int flags) {
  return on_socket(
      fd, [&](NetlinkSocket& ours) { return receive_netlink(ours, fd, message, flags); },
      [&] { return real_recvmsg(fd, message, flags); });
}

// The variants of _FORTIFY_SOURCE: `room` is the size of the buffer. If it is too small, the real function
// ends the program.
VERBENA_HOOK ssize_t __read_chk(int fd, void* data, size_t length, size_t room) {
  if (length <= room && may_be_netlink(fd)) [[unlikely]]
    return read(fd, data, length);
  return real___read_chk(fd, data, length, room);
}

VERBENA_HOOK ssize_t __recv_chk(int fd, void* data, size_t length, size_t room, int flags) {
  if (length <= room && may_be_netlink(fd)) [[unlikely]]
    return recv(fd, data, length, flags);
  return real___recv_chk(fd, data, length, room, flags);
}

VERBENA_HOOK ssize_t __recvfrom_chk(int fd, void* data, size_t length, size_t room, int flags, sockaddr* from,
                                    socklen_t* size) {
  if (length <= room && may_be_netlink(fd)) [[unlikely]]
    return recvfrom(fd, data, length, flags, from, size);
  return real___recvfrom_chk(fd, data, length, room, flags, from, size);
}

}  // namespace verbena
