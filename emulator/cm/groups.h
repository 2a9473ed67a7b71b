// SPDX-License-Identifier: BSD-2-Clause
//
// Multicast groups of rdma_join_multicast(3): the MGID of an address, and the contents of the join event.
// Pure functions. Source: Linux, drivers/infiniband/core/cma.c (cma_iboe_set_mgid, cma_set_mgid,
// cma_make_mc_event), include/net/ip.h and if_inet6.h (ip_ib_mc_map, ipv6_ib_mc_map), RFC 4391 section 4.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "cm/addresses.h"
#include "cm/paths.h"

namespace verbena::cm {

inline constexpr uint32_t kUdpQkey = 0x01234567;  // RDMA_UDP_QKEY
// Of the IPoIB broadcast group (RFC 4391 section 4: the partition's).
inline constexpr uint32_t kIpoibQkey = 0x00000b1b;
inline constexpr uint8_t kMulticastHopLimit = 64;  // RoCE v2: IPV6_DEFAULT_HOPLIMIT

// The MGID of a group address. EINVAL: not an address of a family that has groups. An address for which
// is_any() holds gives the zero MGID ("make one up"). Other addresses are mapped, multicast or not, as Linux
// does:
// - RoCE v2: IPv4 -> ::ffff:a.b.c.d; IPv6 and AF_IB -> the address itself.
// - InfiniBand: IPv4 -> ff1S:401b:PKEY::(low 28 bits); IPv6 -> ff1S:601b:PKEY:(low 80 bits). S is the scope
//   of the IPoIB broadcast group (2, link-local). In space UDP the signature 1b is 01. An IPv6 address that
//   is such an MGID (ff1x:a01b::) and AF_IB -> the address itself.
int mgid_of(const Address& group, PortSpace space, LinkLayer link_layer, Gid* out);

// The multicast LID of a group on the InfiniBand link layer: 0xc000 to 0xfffe (IBA 3.5.10), the same for the
// same MGID in every process. 0 on Ethernet.
uint16_t mlid_of(const Gid& mgid, LinkLayer link_layer);

// The Q_Key of an id. `set`: its present one (0: none yet). `wanted`: the caller's (0: the default of the
// space). EINVAL: the id has another one (cma_set_qkey). TCP has none: 0.
int qkey_of(PortSpace space, uint32_t set, uint32_t wanted, uint32_t* out);

struct Membership {
  Gid mgid;
  uint16_t mlid;
  uint32_t qkey;
  uint8_t service_type;  // RDMA_OPTION_ID_TOS
  uint8_t port;
  uint32_t gid_index;  // of the address that joined
};

// The contents of kMulticastJoin: QPN 0xffffff, the Q_Key, and an address vector with a GRH to the MGID
// (ib_init_ah_from_mcmember). No private data.
DatagramParameters join_parameters(const Membership& membership, LinkLayer link_layer);

}  // namespace verbena::cm
