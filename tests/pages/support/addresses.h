// SPDX-License-Identifier: BSD-2-Clause
//
// Socket addresses. The device's own ones are found in its GID table, as IPv4-mapped and IPv6 GIDs.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>

#include <cstring>
#include <string>

namespace verbena::pages {

class Address {
 public:
  Address() = default;
  Address(const std::string& text, uint16_t port) {
    if (inet_pton(AF_INET, text.c_str(), &v4()->sin_addr) == 1)
      storage_.ss_family = AF_INET;
    else if (inet_pton(AF_INET6, text.c_str(), &v6()->sin6_addr) == 1)
      storage_.ss_family = AF_INET6;
    v4()->sin_port = htons(port);  // in both at the same place
  }

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage_); }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t size() const {
    return storage_.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  }
  Address with_port(uint16_t port) const {
    Address other = *this;
    other.v4()->sin_port = htons(port);
    return other;
  }

  // An empty one when the device has none of this family.
  static std::string of_device(int family);

 private:
  sockaddr_in* v4() { return reinterpret_cast<sockaddr_in*>(&storage_); }
  sockaddr_in6* v6() { return reinterpret_cast<sockaddr_in6*>(&storage_); }

  sockaddr_storage storage_ = {};
};

// "192.0.2.1" or "fd00::1", of a sockaddr as librdmacm gives it.
std::string text_of(const sockaddr* address);

}  // namespace verbena::pages
