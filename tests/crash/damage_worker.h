// SPDX-License-Identifier: BSD-2-Clause
//
// A process that uses everything which lies in shared memory, over and over, and takes any error: its node's
// files and its peers' memory are damaged meanwhile. What it must not do is crash, or stay in a call.
#pragma once

#include <atomic>
#include <cstdint>

#include "fabric/device_table.h"

namespace verbena::damage {

inline constexpr uint32_t kWorkers = 3;

// What a worker tells, in memory that nobody damages.
struct Report {
  std::atomic<const char*> call;      // the call that it is in; nullptr: none
  std::atomic<int64_t> since_ns;      // when that began (CLOCK_MONOTONIC)
  std::atomic<uint64_t> calls;        // done
  std::atomic<uint64_t> completions;  // with IBV_WC_SUCCESS
  std::atomic<uint64_t> sessions;     // begun
  std::atomic<bool> left_objects;     // some object could not be destroyed
  // How others reach it.
  std::atomic<uint32_t> rc, ud, srqn, xrc, rkey;
  std::atomic<uint64_t> address;
  std::atomic<uint16_t> port;
};

struct Shared {
  Report workers[kWorkers];
  std::atomic<bool> stop;
};

// Sessions of open, traffic and close, until `shared.stop`. `addresses`: the node's first device.
int work(Shared& shared, uint32_t me, const GidEntry& gid, uint64_t seed);

}  // namespace verbena::damage
