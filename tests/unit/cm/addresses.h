// SPDX-License-Identifier: BSD-2-Clause
//
// Addresses as tests write them.
#pragma once

#include <arpa/inet.h>
#include <endian.h>
#include <gtest/gtest.h>

#include "cm/addresses.h"

namespace verbena::cm {

inline Address ipv4(const char* host, uint16_t port = 0) {
  sockaddr_in in{};
  EXPECT_EQ(inet_pton(AF_INET, host, &in.sin_addr), 1);
  in.sin_port = htons(port);
  return Address::of(in);
}

inline Address ipv6(const char* host, uint16_t port = 0, uint32_t scope = 0) {
  sockaddr_in6 in{};
  EXPECT_EQ(inet_pton(AF_INET6, host, &in.sin6_addr), 1);
  in.sin6_port = htons(port);
  in.sin6_scope_id = scope;
  return Address::of(in);
}

inline Gid gid(const char* text) { return gid_of(ipv6(text)); }

inline Address ib(const char* host, uint64_t sid, uint64_t mask = ~uint64_t{0}) {
  SockaddrIb in{};
  in.address = gid(host);
  in.sid = htobe64(sid);
  in.sid_mask = htobe64(mask);
  return Address::of(in);
}

}  // namespace verbena::cm
