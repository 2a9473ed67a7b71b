// SPDX-License-Identifier: BSD-2-Clause
//
// The times that QP attributes encode, in nanoseconds. Pure functions.
//
// Sources: InfiniBand Architecture Specification vol. 1, 9.7.5.2.8 (table of RNR NAK timers) and 9.7.6.1.3
// (transport timer), ibv_modify_qp(3).
#pragma once

#include <cstdint>

namespace verbena {

inline constexpr uint64_t kNever = UINT64_MAX;

// min_rnr_timer (its low 5 bits count): how long the requester waits after an RNR NAK. 10 us .. 655.36 ms.
uint64_t rnr_timer_ns(uint8_t min_rnr_timer) noexcept;

// timeout (its low 5 bits count): 4.096 us * 2^timeout; 0 is kNever. Up to 8796.1 s.
uint64_t ack_timeout_ns(uint8_t timeout) noexcept;

// From the first RNR NAK to IBV_WC_RNR_RETRY_EXC_ERR, if each retry meets an RNR NAK at once: rnr_retry waits
// of the responder's `min_rnr_timer` each. rnr_retry 0 fails at once, 7 is kNever.
uint64_t rnr_failure_ns(uint8_t rnr_retry, uint8_t min_rnr_timer) noexcept;

// From sending a request that is never acknowledged to IBV_WC_RETRY_EXC_ERR: the request and each of its
// `retry_cnt` retries wait one timeout. kNever if the timeout is.
uint64_t transport_failure_ns(uint8_t timeout, uint8_t retry_cnt) noexcept;

}  // namespace verbena
