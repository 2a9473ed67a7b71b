// SPDX-License-Identifier: BSD-2-Clause
//
// Socket addresses in commands: rdma_addr_size and related functions in drivers/infiniband/core/addr.c.
#pragma once

#include <infiniband/ib.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>

namespace verbena::rdma_cm {

// The length of an address of this family: AF_INET, AF_INET6 or AF_IB; 0: any other.
constexpr size_t address_size(sa_family_t family) {
  switch (family) {
    case AF_INET:
      return sizeof(sockaddr_in);
    case AF_INET6:
      return sizeof(sockaddr_in6);
    case AF_IB:
      return sizeof(sockaddr_ib);
    default:
      return 0;
  }
}

// The …_IP commands carry a sockaddr_in6, and no longer addresses.
constexpr size_t ip_address_size(const sockaddr_in6& address) {
  const size_t size = address_size(address.sin6_family);
  return size <= sizeof(sockaddr_in6) ? size : 0;
}

template <typename Address>
const sockaddr* as_sockaddr(const Address& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

}  // namespace verbena::rdma_cm
