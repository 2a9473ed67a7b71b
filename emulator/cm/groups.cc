// SPDX-License-Identifier: BSD-2-Clause
#include "cm/groups.h"

#include <errno.h>

#include <algorithm>
#include <cstring>

#include "engine/datagram/multicast.h"

namespace verbena::cm {
namespace {

// Bytes 0 to 5 of the MGID of an IP group over InfiniBand (RFC 4391 section 4): multicast, not permanently
// assigned, scope; the signature of the IP version; the partition.
constexpr uint8_t kFlagsAndScope = 0x10 | 0x2;
constexpr uint8_t kIpv4Signature = 0x40;
constexpr uint8_t kIpv6Signature = 0x60;
constexpr uint8_t kIpoibSignature = 0x1b;
constexpr uint8_t kRdmaCmSignature = 0x01;  // cma_set_mgid: "Use RDMA CM signature"

// An IPv6 address that is an MGID assigned by the subnet administrator (cma_set_mgid: ff1x:a01b).
bool is_assigned_mgid(const Gid& a) {
  return a[0] == 0xff && (a[1] & 0xf0) == 0x10 && a[2] == 0xa0 && a[3] == 0x1b;
}

Gid over_infiniband(const Address& group, PortSpace space) {
  const Gid address = gid_of(group);
  if (group.family() == kFamilyIb || (group.family() == AF_INET6 && is_assigned_mgid(address)))
    return address;
  const bool ipv4 = group.family() == AF_INET;
  Gid mgid{};
  mgid[0] = 0xff;
  mgid[1] = kFlagsAndScope;
  mgid[2] = ipv4 ? kIpv4Signature : kIpv6Signature;
  mgid[3] = space == PortSpace::kUdp ? kRdmaCmSignature : kIpoibSignature;
  mgid[4] = kDefaultPkey >> 8;
  mgid[5] = kDefaultPkey & 0xff;
  if (ipv4) {
    std::copy(address.begin() + 12, address.end(), mgid.begin() + 12);
    mgid[12] &= 0x0f;
  } else {
    std::copy(address.begin() + 6, address.end(), mgid.begin() + 6);
  }
  return mgid;
}

}  // namespace

int mgid_of(const Address& group, PortSpace space, LinkLayer link_layer, Gid* out) {
  if (group.none()) return EINVAL;
  if (is_any(group))
    *out = Gid{};
  else
    *out = link_layer == LinkLayer::kEthernet ? gid_of(group) : over_infiniband(group, space);
  return 0;
}

uint16_t mlid_of(const Gid& mgid, LinkLayer link_layer) {
  if (link_layer == LinkLayer::kEthernet) return 0;
  constexpr uint32_t kFirst = 0xc000, kLast = 0xfffe;
  uint32_t hash = 0x811c9dc5;  // FNV-1a
  for (const uint8_t byte : mgid) hash = (hash ^ byte) * 0x01000193;
  return static_cast<uint16_t>(kFirst + hash % (kLast - kFirst + 1));
}

int qkey_of(PortSpace space, uint32_t set, uint32_t wanted, uint32_t* out) {
  if (set != 0 && wanted != 0 && set != wanted) return EINVAL;
  const uint32_t given = set != 0 ? set : wanted;
  const uint32_t own = space == PortSpace::kIpoib ? kIpoibQkey : space == PortSpace::kTcp ? 0 : kUdpQkey;
  *out = given != 0 ? given : own;
  return 0;
}

DatagramParameters join_parameters(const Membership& membership, LinkLayer link_layer) {
  DatagramParameters parameters{};
  parameters.qp_number = kMulticastQpn;
  parameters.qkey = membership.qkey;
  ibv_ah_attr& vector = parameters.address;
  vector.is_global = 1;
  vector.dlid = membership.mlid;
  vector.static_rate = IBV_RATE_MAX;
  vector.port_num = membership.port;
  std::memcpy(vector.grh.dgid.raw, membership.mgid.data(), 16);
  vector.grh.sgid_index = static_cast<uint8_t>(membership.gid_index);
  vector.grh.hop_limit = link_layer == LinkLayer::kEthernet ? kMulticastHopLimit : uint8_t{0};
  return parameters;
}

}  // namespace verbena::cm
