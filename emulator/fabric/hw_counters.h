// SPDX-License-Identifier: BSD-2-Clause
//
// The counters of a port: /sys/class/infiniband/<name>/ports/1/hw_counters and `rdma statistic`. Names are
// those of the kernel's rxe driver (drivers/infiniband/sw/rxe/rxe_hw_counters.c) where one counts the same.
// All start with the node and only rise.
//
// The living queue pairs count. What they have counted is kept in the node directory when they are destroyed
// (PastCounters). It is lost if their process is killed, or ends without destroying them.
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
  // of the device
  kQkeyViolations,
  kStrays,  // datagrams that no queue pair takes
  kCounters
};
inline constexpr size_t kHwCounters = static_cast<size_t>(HwCounter::kCounters);
inline constexpr size_t kPastCounters = static_cast<size_t>(HwCounter::kQkeyViolations);

inline constexpr std::array<const char*, kHwCounters> kHwCounterNames = {
    "sent_requests",       "sent_bytes",   "rcvd_requests", "rcvd_bytes",    "rcvd_rnr_err",
    "completer_retry_err", "rcvd_dropped", "send_lost",     "rcvd_qkey_err", "rcvd_stray",
};

using HwCounters = std::array<uint64_t, kHwCounters>;
using PastCounters = std::array<uint64_t, kPastCounters>;

}  // namespace verbena
