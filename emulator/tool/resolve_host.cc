// SPDX-License-Identifier: BSD-2-Clause
#include "tool/resolve_host.h"

#include <netdb.h>
#include <sys/socket.h>

#include <cstring>

namespace verbena::tool {

bool resolve_host(const std::string& host, int family, wire::NetAddress* out, std::string* problem) {
  if (wire::NetAddress::from_text(host, out)) return true;
  addrinfo hints{};
  hints.ai_family = family;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found); error != 0) {
    *problem = gai_strerror(error);
    return false;
  }
  sockaddr_storage storage{};
  std::memcpy(&storage, found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
  return wire::NetAddress::from_socket_address(storage, out);
}

}  // namespace verbena::tool
