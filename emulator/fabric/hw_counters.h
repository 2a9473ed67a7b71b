// SPDX-License-Identifier: BSD-2-Clause
//
// The counters of a port: /sys/class/infiniband/<name>/ports/1/hw_counters and `rdma statistic`. Names are
// those of the kernel's rxe driver (drivers/infiniband/sw/rxe/rxe_hw_counters.c) where one counts the same,
// else those of mlx5 (drivers/infiniband/hw/mlx5/counters.c). All start with the node and only rise.
//
// Requests and bytes are counted by the living queue pairs. What they have counted is kept in the node
// directory when they are destroyed (PastCounters). It is lost if their process is killed, or ends without
// destroying them. Errors are counted in the node directory at once (port_counters.h), by the process that
// sees them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace verbena {

enum class HwCounter : uint32_t {
  // of queue pairs
  kSentRequests,
  kSentBytes,
  kReceivedRequests,
  kReceivedBytes,
  kReceivedRnrNaks,
  kRetries,
  kDropped,  // UC and UD: messages that the receiving queue pair has dropped
  kLost,     // UC and UD: messages to another node that could not be sent
  // of queue pairs, at once
  kRequestErrors,        // completions of the send queue in error, but for flushed ones
  kRequestFlushes,       // flushed ones
  kAccessRefused,        // of the errors: IBV_WC_REM_ACCESS_ERR
  kRequestsRefused,      // IBV_WC_REM_INV_REQ_ERR
  kRetriesExceeded,      // IBV_WC_RETRY_EXC_ERR
  kRnrRetriesExceeded,   // IBV_WC_RNR_RETRY_EXC_ERR
  kReceiveErrors,        // completions of the receive queue in error, but for flushed ones
  kReceiveFlushes,       // flushed ones
  kReceiveLengthErrors,  // of the errors: IBV_WC_LOC_LEN_ERR
  kRefusesAccess,        // responder: requests refused with a remote access error
  // Responder: requests with a later, or an earlier, PSN than the expected one. Within a node they are
  // counted when
  // a queue pair first finds that the PSNs differ: what it tries again is no packet.
  kOutOfSequence,
  kDuplicates,
  // of the device
  kQkeyViolations,
  kStrays,  // datagrams that no queue pair takes
  kCounters
};
inline constexpr size_t kHwCounters = static_cast<size_t>(HwCounter::kCounters);
inline constexpr size_t kPastCounters = static_cast<size_t>(HwCounter::kQkeyViolations);

inline constexpr std::array<const char*, kHwCounters> kHwCounterNames = {
    "sent_requests",
    "sent_bytes",
    "rcvd_requests",
    "rcvd_bytes",
    "rcvd_rnr_err",
    "completer_retry_err",
    "rcvd_dropped",
    "send_lost",
    "req_cqe_error",
    "req_cqe_flush_error",
    "req_remote_access_errors",
    "req_remote_invalid_request",
    "retry_exceeded_err",
    "retry_rnr_exceeded_err",
    "resp_cqe_error",
    "resp_cqe_flush_error",
    "resp_local_length_error",
    "resp_remote_access_errors",
    "out_of_seq_request",
    "duplicate_request",
    "rcvd_qkey_err",
    "rcvd_stray",
};

using HwCounters = std::array<uint64_t, kHwCounters>;
using PastCounters = std::array<uint64_t, kPastCounters>;

}  // namespace verbena
