// SPDX-License-Identifier: BSD-2-Clause
//
// What leads the private data of a REQ or SIDR_REQ between IP addresses (InfiniBand Annex A11, RDMA IP CM
// service; cma.c: struct cma_hdr, cma_format_hdr, cma_save_ip_info): who connects to whom. 36 bytes. Pure
// functions.
#pragma once

#include <cstdint>
#include <span>

#include "cm/addresses.h"

namespace verbena::cm {

inline constexpr size_t kCmaHeaderSize = 36;

// `source` and `destination` of the same family, IPv4 or IPv6. Only the source's port is in it.
void write_cma_header(const Address& source, const Address& destination,
                      std::span<uint8_t, kCmaHeaderSize> out);

// The destination gets `port`, which the request's service ID tells. False: not such a header.
bool read_cma_header(std::span<const uint8_t, kCmaHeaderSize> bytes, uint16_t port, Address* source,
                     Address* destination);

}  // namespace verbena::cm
