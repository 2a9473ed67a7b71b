// SPDX-License-Identifier: BSD-2-Clause
#include "wire/ip_group.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>

namespace verbena::wire {
namespace {

in_addr ipv4_of(const NetAddress& address) {
  in_addr host;
  std::memcpy(&host, &address.bytes[12], sizeof host);
  return host;
}

in6_addr ipv6_of(const NetAddress& address) {
  in6_addr host;
  std::memcpy(&host, address.bytes.data(), sizeof host);
  return host;
}

// The interface of an IPv6 address; 0: none.
unsigned interface_of(const NetAddress& address) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return 0;
  unsigned found = 0;
  const in6_addr wanted = ipv6_of(address);
  for (const ifaddrs* each = all; each != nullptr && found == 0; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET6) continue;
    sockaddr_in6 has;
    std::memcpy(&has, each->ifa_addr, sizeof has);
    if (IN6_ARE_ADDR_EQUAL(&has.sin6_addr, &wanted)) found = if_nametoindex(each->ifa_name);
  }
  freeifaddrs(all);
  return found;
}

int set_option(int fd, int level, int option, const void* value, socklen_t size) {
  return setsockopt(fd, level, option, value, size) == 0 ? 0 : errno;
}

}  // namespace

int join_ip_group(int fd, const NetAddress& at, const NetAddress& group) {
  if (at.is_ipv4() != group.is_ipv4()) return EADDRNOTAVAIL;
  if (at.is_ipv4()) {
    const ip_mreq request{ipv4_of(group), ipv4_of(at)};
    return set_option(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &request, sizeof request);
  }
  const ipv6_mreq request{ipv6_of(group), interface_of(at)};
  if (request.ipv6mr_interface == 0) return EADDRNOTAVAIL;
  return set_option(fd, IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, &request, sizeof request);
}

int send_to_ip_groups_from(int fd, const NetAddress& from, int hops) {
  if (from.is_ipv4()) {
    const in_addr interface = ipv4_of(from);
    if (const int error = set_option(fd, IPPROTO_IP, IP_MULTICAST_TTL, &hops, sizeof hops); error != 0)
      return error;
    return set_option(fd, IPPROTO_IP, IP_MULTICAST_IF, &interface, sizeof interface);
  }
  const unsigned interface = interface_of(from);
  if (const int error = set_option(fd, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, &hops, sizeof hops); error != 0)
    return error;
  return set_option(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, &interface, sizeof interface);
}

}  // namespace verbena::wire
