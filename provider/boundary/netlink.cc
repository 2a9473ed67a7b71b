// SPDX-License-Identifier: BSD-2-Clause
#include "boundary/netlink.h"

#include <linux/capability.h>
#include <linux/netlink.h>
#include <stdlib.h>
#include <string.h>

#include "boundary/kernel.h"
#include "boundary/provider.h"
#include "boundary/real.h"

namespace verbena {
namespace {

const verbena_netlink_kernel* find_kernel() {
  static std::atomic<const verbena_netlink_kernel*> found{nullptr};
  const verbena_netlink_kernel* kernel = found.load(std::memory_order_acquire);
  if (kernel != nullptr) return kernel;
  const auto entry_point = reinterpret_cast<verbena_netlink_fn>(provider_function(VERBENA_NETLINK));
  if (entry_point == nullptr) return nullptr;
  kernel = entry_point();
  found.store(kernel, std::memory_order_release);
  return kernel;
}

// netlink_capable(CAP_NET_ADMIN), as far as a process can know.
bool is_network_administrator() {
  __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
  return kernel::ask(SYS_capget, &header, data) == 0 && (data[0].effective >> CAP_NET_ADMIN & 1) != 0;
}

// The port id of the socket, which gets one now if it has none. 0: it cannot.
uint32_t port_of(int fd) {
  sockaddr_nl address = {};
  for (int i = 0; i < 2; ++i) {
    socklen_t size = sizeof address;
    if (kernel::ask(SYS_getsockname, fd, &address, &size) != 0) return 0;
    if (address.nl_pid != 0) return address.nl_pid;
    address = {};
    address.nl_family = AF_NETLINK;
    if (kernel::ask(SYS_bind, fd, &address, sizeof address) != 0) return 0;
  }
  return 0;
}

int option_of(int fd, int level, int name) {
  int value = 0;
  socklen_t size = sizeof value;
  return kernel::ask(SYS_getsockopt, fd, level, name, &value, &size) == 0 ? value : 0;
}

struct Delivery {
  int fd;
  uint32_t port;
};

int deliver(void* owner, const void* data, size_t length) {
  const auto* to = static_cast<const Delivery*>(owner);
  sockaddr_nl self = {};
  self.nl_family = AF_NETLINK;
  self.nl_pid = to->port;
  const long sent = kernel::ask(SYS_sendto, to->fd, data, length, MSG_DONTWAIT, &self, sizeof self);
  return sent >= 0 ? 0 : static_cast<int>(-sent);
}

verbena_netlink_program program_of(Delivery* delivery) {
  return {.port = delivery->port,
          .short_errors = option_of(delivery->fd, SOL_NETLINK, NETLINK_CAP_ACK),
          .deliver = deliver,
          .owner = delivery};
}

// 0: the message is for the kernel.
int judge_destination(const void* address, socklen_t size) {
  if (address == nullptr || size == 0) return 0;
  sockaddr_nl to = {};
  if (size < sizeof to) return EINVAL;
  memcpy(&to, address, sizeof to);
  if (to.nl_family != AF_NETLINK) return EINVAL;
  if (to.nl_pid == 0 && to.nl_groups == 0) return 0;
  return is_network_administrator() ? ECONNREFUSED : EPERM;
}

// The message in one piece: where it is, or in *copy, which the caller frees. nullptr: ENOMEM.
const void* in_one_piece(const msghdr& message, size_t length, void** copy) {
  if (message.msg_iovlen == 1) return message.msg_iov[0].iov_base;
  *copy = malloc(length);
  auto* to = static_cast<char*>(*copy);
  for (size_t i = 0; to != nullptr && i < message.msg_iovlen; ++i) {
    memcpy(to, message.msg_iov[i].iov_base, message.msg_iov[i].iov_len);
    to += message.msg_iov[i].iov_len;
  }
  return *copy;
}

// The rest of the room that the kernel needs for a message (netlink_sendmsg).
constexpr size_t kSendOverhead = 32;

}  // namespace

int open_netlink(int type) {
  const verbena_netlink_kernel* kernel = find_kernel();
  if (kernel == nullptr) return failed<int>(EPROTONOSUPPORT);
  restore_missing_tree();
  if (!kernel->is_ready()) return failed<int>(EPROTONOSUPPORT);
  const int fd = real_socket(AF_NETLINK, type, NETLINK_USERSOCK);
  if (fd < 0) return fd;
  if (enter_netlink(fd, *kernel)) return fd;
  kernel::ask(SYS_close, fd);
  return failed<int>(ENOBUFS);
}

ssize_t send_netlink(NetlinkSocket& socket, int fd, const msghdr& message, int flags) {
  if ((flags & MSG_OOB) != 0) return failed<ssize_t>(EOPNOTSUPP);
  size_t length = 0;
  for (size_t i = 0; i < message.msg_iovlen; ++i) length += message.msg_iov[i].iov_len;
  if (length == 0) return failed<ssize_t>(ENODATA);
  if (const int error = judge_destination(message.msg_name, message.msg_namelen); error != 0)
    return failed<ssize_t>(error);
  if (length + kSendOverhead > static_cast<size_t>(option_of(fd, SOL_SOCKET, SO_SNDBUF)))
    return failed<ssize_t>(EMSGSIZE);

  Delivery delivery = {.fd = fd, .port = port_of(fd)};
  if (delivery.port == 0) return failed<ssize_t>(EADDRINUSE);
  socket.port.store(delivery.port, std::memory_order_release);
  void* copy = nullptr;
  const void* data = in_one_piece(message, length, &copy);
  if (data == nullptr) return failed<ssize_t>(ENOMEM);
  const verbena_netlink_program program = program_of(&delivery);
  const int before = errno;
  const int error =
      find_kernel()->request(socket.state.load(std::memory_order_acquire), data, length, &program);
  free(copy);
  errno = before;
  return error == 0 ? static_cast<ssize_t>(length) : failed<ssize_t>(error);
}

ssize_t write_netlink(int fd, const void* data, size_t length) {
  NetlinkSocket* socket = find_netlink(fd);
  if (socket == nullptr) return real_write(fd, data, length);
  iovec part = {.iov_base = const_cast<void*>(data), .iov_len = length};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  return send_netlink(*socket, fd, message, 0);
}

ssize_t receive_netlink(NetlinkSocket& socket, int fd, msghdr* message, int flags) {
  for (;;) {
    sockaddr_nl from = {};
    msghdr copy = *message;
    copy.msg_name = &from;
    copy.msg_namelen = sizeof from;
    const ssize_t length = real_recvmsg(fd, &copy, flags);
    if (length < 0 || (flags & MSG_ERRQUEUE) != 0) return length;
    const uint32_t port = socket.port.load(std::memory_order_acquire);
    if (port == 0 || from.nl_pid != port) {  // from a process that has guessed the port id
      if ((flags & MSG_PEEK) != 0) {
        char byte;
        kernel::ask(SYS_recvfrom, fd, &byte, sizeof byte, MSG_DONTWAIT, nullptr, nullptr);
      }
      continue;
    }

    from.nl_pid = 0;
    if (message->msg_name != nullptr)
      memcpy(message->msg_name, &from,
             message->msg_namelen < sizeof from ? message->msg_namelen : sizeof from);
    message->msg_namelen = message->msg_name != nullptr ? sizeof from : 0;
    message->msg_controllen = copy.msg_controllen;
    message->msg_flags = copy.msg_flags;
    if ((flags & MSG_PEEK) == 0) {
      Delivery delivery = {.fd = fd, .port = port};
      const verbena_netlink_program program = program_of(&delivery);
      const int before = errno;
      find_kernel()->more(socket.state.load(std::memory_order_acquire), &program);
      errno = before;
    }
    return length;
  }
}

int connect_netlink(int fd, const sockaddr* address, socklen_t size) {
  if (address == nullptr || size < sizeof(sa_family_t) || address->sa_family != AF_NETLINK)
    return real_connect(fd, address, size);
  if (const int error = judge_destination(address, size); error != 0)
    return failed<int>(error == EPERM ? EPERM : error == EINVAL ? EINVAL : ECONNREFUSED);
  return port_of(fd) != 0 ? 0 : failed<int>(EADDRINUSE);
}

}  // namespace verbena
