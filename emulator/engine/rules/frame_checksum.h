// SPDX-License-Identifier: BSD-2-Clause
//
// Checksum offload of raw packet queue pairs: IBV_SEND_IP_CSUM and IBV_WC_IP_CSUM_OK (ibv_post_send(3),
// ibv_poll_cq(3)). Pure functions on an Ethernet frame that begins with the destination's address. VLAN tags
// are skipped; extension headers of IPv6 are not. mlx5 does the same: MLX5_ETH_WQE_L3_CSUM and _L4_CSUM in
// providers/mlx5/qp.c, CQE_L3_OK and CQE_L4_OK in cq.c.
#pragma once

#include <cstdint>

namespace verbena {

// Fills in the checksum of the IPv4 header, and that of UDP or TCP above IPv4 or IPv6; of a fragment only the
// header's. A frame that is of neither, or that ends before its packet does, stays as it is.
void fill_in_checksums(uint8_t* frame, uint32_t length) noexcept;

// UDP or TCP over IPv4, not a fragment, both checksums there and right.
bool are_checksums_right(const uint8_t* frame, uint32_t length) noexcept;

}  // namespace verbena
