// SPDX-License-Identifier: BSD-2-Clause
//
// The syndrome of an AETH: acknowledged, and with how many credits; receiver not ready, and for how long; or
// refused, and why (InfiniBand Architecture Specification vol. 1, 9.7.5.1.1 and 9.7.5.2).
#pragma once

#include <cstdint>

namespace verbena::roce {

enum class SyndromeKind : uint8_t { kAck = 0, kRnrNak = 1, kReserved = 2, kNak = 3 };

enum class NakCode : uint8_t {
  kSequence = 0,  // a PSN is missing
  kInvalidRequest = 1,
  kRemoteAccess = 2,
  kRemoteOperation = 3,
  kInvalidRdRequest = 4,
};

// Credits are not used: "invalid" means that the requester need not count them.
inline constexpr uint8_t kNoCredits = 0x1f;

constexpr SyndromeKind kind_of(uint8_t syndrome) noexcept {
  return static_cast<SyndromeKind>(syndrome >> 5 & 3);
}
// Credits, RNR timer (as ibv_qp_attr::min_rnr_timer) or NakCode, by kind.
constexpr uint8_t value_of(uint8_t syndrome) noexcept { return syndrome & 0x1f; }

constexpr uint8_t ack_syndrome() noexcept { return kNoCredits; }
constexpr uint8_t rnr_syndrome(uint8_t timer) noexcept { return static_cast<uint8_t>(0x20 | (timer & 0x1f)); }
constexpr uint8_t nak_syndrome(NakCode code) noexcept {
  return static_cast<uint8_t>(0x60 | static_cast<uint8_t>(code));
}

}  // namespace verbena::roce
