// SPDX-License-Identifier: BSD-2-Clause
//
// The hash by which frames are spread over work queues (ibv_create_qp_ex(3), IBV_QP_INIT_ATTR_RX_HASH):
// Toeplitz, over the addresses and ports that were chosen, in that order, the source's first (Microsoft, "RSS
// Hashing Functions"). Pure.
#pragma once

#include <array>
#include <cstdint>

#include "fabric/flow_table.h"

namespace verbena {

inline constexpr uint32_t kRssKeyBytes = 40;

// `fields`: enum ibv_rx_hash_fields, those of IPv4 or of IPv6, and ports of TCP or of UDP. A frame of another
// protocol has none of them, and the hash 0.
uint32_t rss_hash(const std::array<uint8_t, kRssKeyBytes>& key, uint64_t fields,
                  const FlowFields& frame) noexcept;

}  // namespace verbena
