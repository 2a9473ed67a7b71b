// SPDX-License-Identifier: BSD-2-Clause
//
// Where a tool learns that requests are sent again: what observer.h does not tell, as their responses are
// lost, or are another process's.
#pragma once

#include <atomic>
#include <cstdint>

namespace verbena {

// A request that is to be sent again, as the peer was not ready, or nothing has come back. Where it is tried
// again and again, this comes once.
struct RetryEvent {
  uint32_t qpn;
  uint64_t wr_id;
  uint32_t psn;        // of its first packet
  uint32_t length;     // bytes
  uint8_t opcode;      // enum ibv_wr_opcode
  uint8_t vendor_err;  // enum class VendorError: what it fails with when its retries are over
};

class RetryObserver {
 public:
  // As the calls of Observer.
  virtual void on_retry(const RetryEvent&) = 0;

 protected:
  ~RetryObserver() = default;
};

// nullptr: there is none. The one that is replaced must outlive calls that are under way.
inline constinit std::atomic<RetryObserver*> retry_observer{nullptr};

}  // namespace verbena
