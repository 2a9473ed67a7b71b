// SPDX-License-Identifier: BSD-2-Clause
#include "addresses.h"

namespace verbena::pages {
namespace {

bool is_v4(const ibv_gid& gid) {
  static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return memcmp(gid.raw, mapped, sizeof(mapped)) == 0;
}

// Of the loopback's addresses only if there is no other, and no link-local one: it would need a scope.
int worth(const ibv_gid& gid, int family) {
  if (is_v4(gid) != (family == AF_INET)) return 0;
  if (is_v4(gid)) return gid.raw[12] == 127 ? 1 : 2;
  return gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80 ? 0 : 2;
}

std::string text_of_gid(const ibv_gid& gid) {
  char text[INET6_ADDRSTRLEN] = "";
  if (is_v4(gid))
    inet_ntop(AF_INET, gid.raw + 12, text, sizeof(text));
  else
    inet_ntop(AF_INET6, gid.raw, text, sizeof(text));
  return text;
}

}  // namespace

std::string Address::of_device(int family) {
  ibv_context** devices = rdma_get_devices(nullptr);
  if (devices == nullptr) return "";
  std::string found;
  int best = 0;
  ibv_port_attr port = {};
  if (devices[0] != nullptr && ibv_query_port(devices[0], 1, &port) == 0)
    for (int i = 0; i < port.gid_tbl_len; i++) {
      ibv_gid gid = {};
      if (ibv_query_gid(devices[0], 1, i, &gid) != 0) break;
      if (worth(gid, family) <= best) continue;
      best = worth(gid, family);
      found = text_of_gid(gid);
    }
  rdma_free_devices(devices);
  return found;
}

std::string text_of(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET)
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof(text));
  if (address->sa_family == AF_INET6)
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text, sizeof(text));
  return text;
}

}  // namespace verbena::pages
