// SPDX-License-Identifier: BSD-2-Clause
#include "wire/address_watch.h"

#include <errno.h>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "fabric/descriptor.h"
#include "wire/net_address.h"

namespace verbena::wire {

namespace {

// True: interfaces have the address, and each of them is down. bind(2) does not check that.
bool is_down(const NetAddress& address) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return false;
  bool down = false, up = false;
  for (const ifaddrs* entry = all; entry != nullptr; entry = entry->ifa_next) {
    sockaddr_storage storage{};
    if (entry->ifa_addr == nullptr) continue;
    const sa_family_t family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    std::memcpy(&storage, entry->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    NetAddress own;
    if (!NetAddress::from_socket_address(storage, &own) || own != address) continue;
    ((entry->ifa_flags & IFF_UP) != 0 ? up : down) = true;
  }
  freeifaddrs(all);
  return down && !up;
}

}  // namespace

bool machine_has(const std::array<uint8_t, 16>& bytes) {
  const NetAddress address{bytes};
  sockaddr_storage where;
  const socklen_t size = address.to_socket_address(0, &where);
  const Descriptor probe{socket(where.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  if (probe.fd < 0) return true;
  if (bind(probe.fd, reinterpret_cast<const sockaddr*>(&where), size) != 0 && errno == EADDRNOTAVAIL)
    return false;
  return !is_down(address);
}

int watch_addresses() {
  const int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE);
  if (fd < 0) return -1;
  sockaddr_nl groups{};
  groups.nl_family = AF_NETLINK;
  // Links, too: an interface that is taken down keeps its IPv4 addresses, which are then unusable.
  groups.nl_groups = RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR | RTMGRP_LINK;
  if (bind(fd, reinterpret_cast<const sockaddr*>(&groups), sizeof groups) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

void drain_address_watch(int fd) {
  char message[4096];
  // ENOBUFS: some notifications were lost. The addresses are checked anyway.
  for (int i = 0; i < 256; ++i)
    if (recv(fd, message, sizeof message, MSG_DONTWAIT | MSG_TRUNC) < 0 && errno != ENOBUFS && errno != EINTR)
      return;
}

}  // namespace verbena::wire
