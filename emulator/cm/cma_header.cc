// SPDX-License-Identifier: BSD-2-Clause
#include "cm/cma_header.h"

#include <cstring>

namespace verbena::cm {
namespace {

// Version; IP version in the upper half of a byte; port; addresses (IPv4 in the last four bytes).
constexpr size_t kIpVersion = 1, kPort = 2, kSource = 4, kDestination = 20, kIpv4Offset = 12;

void write_host(const Address& a, uint8_t* out) {
  if (a.family() == AF_INET) {
    const sockaddr_in in = a.in4();
    std::memcpy(out + kIpv4Offset, &in.sin_addr, 4);
  } else {
    const sockaddr_in6 in = a.in6();
    std::memcpy(out, &in.sin6_addr, 16);
  }
}

Address read_host(bool ipv4, const uint8_t* bytes, uint16_t port) {
  Address address;
  if (ipv4) {
    sockaddr_in in{};
    std::memcpy(&in.sin_addr, bytes + kIpv4Offset, 4);
    address = Address::of(in);
  } else {
    sockaddr_in6 in{};
    std::memcpy(&in.sin6_addr, bytes, 16);
    address = Address::of(in);
  }
  set_port(&address, port);
  return address;
}

}  // namespace

void write_cma_header(const Address& source, const Address& destination,
                      std::span<uint8_t, kCmaHeaderSize> out) {
  std::memset(out.data(), 0, out.size());
  out[kIpVersion] = source.family() == AF_INET ? 4 << 4 : 6 << 4;
  const uint16_t port = port_of(source);
  out[kPort] = static_cast<uint8_t>(port >> 8);
  out[kPort + 1] = static_cast<uint8_t>(port);
  write_host(source, out.data() + kSource);
  write_host(destination, out.data() + kDestination);
}

bool read_cma_header(std::span<const uint8_t, kCmaHeaderSize> bytes, uint16_t port, Address* source,
                     Address* destination) {
  const unsigned ip = bytes[kIpVersion] >> 4;
  if (bytes[0] != 0 || (ip != 4 && ip != 6)) return false;
  const auto from = static_cast<uint16_t>(bytes[kPort] << 8 | bytes[kPort + 1]);
  *source = read_host(ip == 4, bytes.data() + kSource, from);
  *destination = read_host(ip == 4, bytes.data() + kDestination, port);
  return true;
}

}  // namespace verbena::cm
