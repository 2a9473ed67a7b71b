// SPDX-License-Identifier: BSD-2-Clause
#include "udp/segmentation.h"

#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/udp.h>
#include <sys/ioctl.h>

#include <cstring>

namespace verbena::udp {
namespace {

// The kernel's own, which no hardware divides for.
bool is_virtual_pair(int fd, const char* interface) {
  ethtool_drvinfo driver{};
  driver.cmd = ETHTOOL_GDRVINFO;
  ifreq request{};
  std::strncpy(request.ifr_name, interface, IFNAMSIZ - 1);
  request.ifr_data = reinterpret_cast<char*>(&driver);
  return ioctl(fd, SIOCETHTOOL, &request) == 0 && std::strcmp(driver.driver, "veth") == 0;
}

bool is_divided_by_kernel(int fd, const wire::NetAddress& address) {
  if (address.bytes[12] == 127) return true;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return false;
  bool found = false;
  for (const ifaddrs* each = all; each != nullptr && !found; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) continue;
    sockaddr_storage name{};
    std::memcpy(&name, each->ifa_addr, sizeof(sockaddr_in));
    wire::NetAddress own;
    found = wire::NetAddress::from_socket_address(name, &own) && own == address &&
            ((each->ifa_flags & IFF_LOOPBACK) != 0 || is_virtual_pair(fd, each->ifa_name));
  }
  freeifaddrs(all);
  return found;
}

}  // namespace

bool may_segment(int fd, const wire::NetAddress& address) {
  const int none = 0;  // each datagram names its size
  if (setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &none, sizeof none) != 0) return false;
  return !address.is_ipv4() || is_divided_by_kernel(fd, address);
}

}  // namespace verbena::udp
