// SPDX-License-Identifier: BSD-2-Clause
//
// An observer that is content with one call for each small request. While one is attached, requests take the
// fast path although there is an Observer (observer.h).
#pragma once

#include <atomic>
#include <cstdint>

namespace verbena {

// A small request that has been carried out within its call. Its receive completion, if it has one, is the
// peer's.
struct SmallRequestEvent {
  uint32_t qpn;
  uint32_t peer_qpn;
  uint64_t wr_id;
  uint32_t length;  // bytes
  uint32_t psn;
  uint8_t opcode;  // enum ibv_wr_opcode
};

class FastPathObserver {
 public:
  // As the calls of Observer.
  virtual void on_small_request(const SmallRequestEvent&) = 0;

 protected:
  ~FastPathObserver() = default;
};

inline constinit std::atomic<FastPathObserver*> fast_path_observer{nullptr};

}  // namespace verbena
