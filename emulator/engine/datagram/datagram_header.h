// SPDX-License-Identifier: BSD-2-Clause
//
// The 40 bytes in front of every received datagram: the network header of the packet. Pure functions.
//
// - InfiniBand, and RoCE v1: a Global Routing Header with next header 0x1b (InfiniBand Architecture Specification
//   vol. 1, 8.3). A packet without one leaves the 40 bytes undefined, but uses them (11.4.1.2; ibv_post_recv(3)).
// - RoCE v2 over IPv6: the IPv6 header, next header UDP.
// - RoCE v2 over IPv4: 20 zeros, then the IPv4 header (Annex A17, 4.5.2; rxe_resp.c execute(): zeros; rxe_net.c
//   prepare_ipv4_hdr(): don't fragment, checksum filled in). Programs tell the kinds apart with libibverbs/verbs.c
//   get_grh_header_version().
//
// Lengths are those of the packet as an adapter would send it.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>

#include "fabric/device_table.h"

namespace verbena {

inline constexpr uint32_t kGrhBytes = 40;

enum class NetworkHeader : uint8_t { kNone, kInfiniband, kIpv6, kIpv4 };

// The header of a packet from `source` (an entry of the port's GID table) to `dgid`. IPv4 only if both are
// IPv4-mapped.
NetworkHeader network_header(const GidEntry& source, const ibv_gid& dgid) noexcept;

// An IPv6 multicast address, or an IPv4-mapped one of class D (kernel, include/rdma/ib_addr.h,
// rdma_is_multicast_addr()).
bool is_multicast(const ibv_gid& gid) noexcept;

// What the receiver's completion says as service level (ibv_wc::sl). A RoCE packet has none. mlx5 puts the kind of the
// packet there (rdma-core, providers/mlx5/cq.c handle_responder(); the kernel's handle_responder() names the bits), and
// programs read it: UCX before 1.19 finds the GIDs in the header by it. Bits 0 and 1: 1 IPv6, 2 IPv4. Bit 3: UDP.
constexpr uint8_t reported_service_level(NetworkHeader kind, uint8_t of_address) noexcept {
  if (kind == NetworkHeader::kIpv6) return 0x9;
  if (kind == NetworkHeader::kIpv4) return 0xa;
  return of_address;
}

struct DatagramHeader {
  NetworkHeader kind = NetworkHeader::kNone;
  std::array<uint8_t, kGrhBytes> bytes{};

  // Fills in all fields that do not depend on the message. Traffic class, flow label (20 bits), hop limit and
  // dgid come from `route` of the AH. kNone leaves zeros.
  static DatagramHeader of(const GidEntry& source, const ibv_global_route& route) noexcept;

  // Fills in the lengths, and the checksum, for a message of `length` bytes, with an immediate or without.
  void set_length(uint32_t length, bool immediate) noexcept;
};

}  // namespace verbena
