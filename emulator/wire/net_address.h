// SPDX-License-Identifier: BSD-2-Clause
//
// An address of a node: the 16 bytes of a RoCE v2 GID, which are an IPv6 address. An IPv4 address is mapped
// to ::ffff:a.b.c.d (RFC 4291, 2.5.5.2; IBTA annex A17, RoCEv2, A17.4.1).
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <string>

namespace verbena::wire {

struct NetAddress {
  std::array<uint8_t, 16> bytes{};  // network byte order

  static NetAddress of_gid(const uint8_t* gid) {
    NetAddress address;
    std::copy_n(gid, address.bytes.size(), address.bytes.begin());
    return address;
  }

  friend auto operator<=>(const NetAddress&, const NetAddress&) = default;

  bool is_ipv4() const;
  // True: a peer may be reached by it. False for unspecified and multicast addresses and for IPv6 link-local
  // ones (fe80::/10), which would need a zone. 169.254/16 is allowed.
  bool is_reachable() const;

  // For connect(2) and bind(2): AF_INET for an IPv4 address, else AF_INET6. Returns the length written.
  socklen_t to_socket_address(uint16_t port, sockaddr_storage* out) const;
  // False: neither AF_INET nor AF_INET6. A mapped IPv4 address becomes the IPv4 address.
  static bool from_socket_address(const sockaddr_storage& from, NetAddress* out);

  // "192.0.2.1", "2001:db8::1"; no names, no zones, no brackets.
  std::string text() const;
  std::string text(uint16_t port) const;  // "192.0.2.1:47910", "[2001:db8::1]:47910"
  static bool from_text(const std::string& text, NetAddress* out);
};

}  // namespace verbena::wire
