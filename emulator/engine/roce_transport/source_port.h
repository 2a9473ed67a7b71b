// SPDX-License-Identifier: BSD-2-Clause
//
// The UDP source port of a connection: networks with several ways choose one by it (Annex A17, A17.3.2). Pure
// functions, as the kernel's <rdma/ib_verbs.h> has them.
#pragma once

#include <cstdint>

namespace verbena {

inline constexpr uint16_t kFirstSourcePort = 0xc000;

// Of a connection whose path names no flow label (rdma_calc_flow_label()).
constexpr uint32_t flow_label_of(uint32_t qpn, uint32_t remote_qpn) noexcept {
  uint64_t mixed = uint64_t{qpn} * remote_qpn;
  mixed ^= mixed >> 20;
  mixed ^= mixed >> 40;
  return static_cast<uint32_t>(mixed & 0xfffff);
}

// rdma_flow_label_to_udp_sport()
constexpr uint16_t source_port_of(uint32_t flow_label) noexcept {
  const uint32_t low = (flow_label & 0x3fff) ^ ((flow_label & 0xfc000) >> 14);
  return static_cast<uint16_t>(low | kFirstSourcePort);
}

}  // namespace verbena
