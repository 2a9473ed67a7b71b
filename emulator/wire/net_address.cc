// SPDX-License-Identifier: BSD-2-Clause
#include "wire/net_address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

namespace verbena::wire {
namespace {

constexpr std::array<uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

NetAddress mapped(const in_addr& address) {
  NetAddress out;
  std::copy(kMapped.begin(), kMapped.end(), out.bytes.begin());
  std::memcpy(&out.bytes[12], &address, 4);
  return out;
}

}  // namespace

bool NetAddress::is_ipv4() const { return std::equal(kMapped.begin(), kMapped.end(), bytes.begin()); }

bool NetAddress::is_reachable() const {
  if (is_ipv4()) return bytes[12] != 0 && bytes[12] < 224;  // this network; multicast and reserved
  in6_addr address;
  std::memcpy(&address, bytes.data(), 16);
  return !IN6_IS_ADDR_UNSPECIFIED(&address) && !IN6_IS_ADDR_MULTICAST(&address) &&
         !IN6_IS_ADDR_LINKLOCAL(&address);
}

socklen_t NetAddress::to_socket_address(uint16_t port, sockaddr_storage* out) const {
  std::memset(out, 0, sizeof *out);
  if (is_ipv4()) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    std::memcpy(&address.sin_addr, &bytes[12], 4);
    std::memcpy(out, &address, sizeof address);
    return sizeof address;
  }
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  std::memcpy(&address.sin6_addr, bytes.data(), 16);
  std::memcpy(out, &address, sizeof address);
  return sizeof address;
}

bool NetAddress::from_socket_address(const sockaddr_storage& from, NetAddress* out) {
  if (from.ss_family == AF_INET) {
    sockaddr_in address;
    std::memcpy(&address, &from, sizeof address);
    *out = mapped(address.sin_addr);
    return true;
  }
  if (from.ss_family == AF_INET6) {
    sockaddr_in6 address;
    std::memcpy(&address, &from, sizeof address);
    std::memcpy(out->bytes.data(), &address.sin6_addr, 16);
    return true;
  }
  return false;
}

std::string NetAddress::text() const {
  char text[INET6_ADDRSTRLEN] = "";
  if (is_ipv4())
    inet_ntop(AF_INET, &bytes[12], text, sizeof text);
  else
    inet_ntop(AF_INET6, bytes.data(), text, sizeof text);
  return text;
}

std::string NetAddress::text(uint16_t port) const {
  return (is_ipv4() ? text() : "[" + text() + "]") + ":" + std::to_string(port);
}

bool NetAddress::from_text(const std::string& text, NetAddress* out) {
  in_addr ipv4;
  if (inet_pton(AF_INET, text.c_str(), &ipv4) == 1) {
    *out = mapped(ipv4);
    return true;
  }
  return inet_pton(AF_INET6, text.c_str(), out->bytes.data()) == 1;
}

}  // namespace verbena::wire
