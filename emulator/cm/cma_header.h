// SPDX-License-Identifier: BSD-2-Clause
//
// The header at the start of the private data of a REQ or SIDR_REQ between IP addresses: source and
// destination (InfiniBand Annex A11, RDMA IP CM service; cma.c: struct cma_hdr, cma_format_hdr,
// cma_save_ip_info). 36 bytes. Pure functions.
#pragma once

#include <cstdint>
#include <span>

#include "cm/addresses.h"

namespace verbena::cm {

inline constexpr size_t kCmaHeaderSize = 36;

// `source` and `destination` have the same family, IPv4 or IPv6. Of the ports, only the source's is in the
// header.
void write_cma_header(const Address& source, const Address& destination,
                      std::span<uint8_t, kCmaHeaderSize> out);

// The destination gets `port`, which comes from the request's service ID. False: not such a header.
bool read_cma_header(std::span<const uint8_t, kCmaHeaderSize> bytes, uint16_t port, Address* source,
                     Address* destination);

}  // namespace verbena::cm
