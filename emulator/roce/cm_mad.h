// SPDX-License-Identifier: BSD-2-Clause
//
// A MAD of the connection manager, with its message. Pure functions; bytes from the network are not trusted.
#pragma once

#include <optional>
#include <span>
#include <variant>

#include "roce/cm_messages.h"
#include "roce/cm_more_messages.h"

namespace verbena::roce {

using CmMessage =
    std::variant<CmReq, CmMra, CmRej, CmRep, CmRtu, CmDreq, CmDrep, CmSidrReq, CmSidrRep, CmLap, CmApr>;

struct CmMad {
  uint64_t transaction_id;
  CmMessage message;
};

// The message of a MAD. Nothing: it has not 256 bytes, is not of the connection manager's class, version and
// method, reports an error, or its attribute is none of the above.
std::optional<CmMad> parse_cm_mad(std::span<const uint8_t> mad) noexcept;

void write_cm_mad(const CmMad& mad, std::span<uint8_t, kMadSize> out) noexcept;

}  // namespace verbena::roce
