// SPDX-License-Identifier: BSD-2-Clause
//
// What a role program reports while it works, in memory that it shares with the driver and that outlives it.
// A flow is one direction of traffic over one queue pair of the role.
#pragma once

#include <time.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace verbena::crash {

inline constexpr int kCommandFd = 3;  // socket: a line from the driver, a line back
inline constexpr int kBlockFd = 4;    // memfd: ControlBlock
inline constexpr int kExecFd = 5;     // pipe: a byte makes the role execute another program, whatever it does
inline constexpr int kFlows = 8;

enum class Kind : uint32_t { kSmallSend, kBigSend, kWrite, kWriteWithImmediate, kRead, kFetchAndAdd, kMixed };
inline constexpr const char* kKindNames[] = {"small-send", "big-send",      "write", "write-imm",
                                             "read",       "fetch-and-add", "mixed"};
inline constexpr uint32_t kKinds = 7;

// CLOCK_MONOTONIC in nanoseconds: the driver and the roles compare their times.
inline int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

struct FlowReport {
  // The initiator's.
  std::atomic<uint64_t> posted;  // counted before ibv_post_send is called
  std::atomic<uint64_t> acknowledged;
  std::atomic<uint64_t> flushed_sends;
  std::atomic<uint32_t> first_failure;  // enum ibv_wc_status; 0: none
  std::atomic<uint32_t> vendor_error;   // of that completion
  std::atomic<int64_t> first_post_ns;   // CLOCK_MONOTONIC: the first request not acknowledged was posted
  std::atomic<int64_t> failed_ns;       // its completion was polled
  // The target's.
  std::atomic<uint64_t> receives_posted;
  std::atomic<uint64_t> received;
  std::atomic<uint64_t> flushed_receives;
};

struct ControlBlock {
  FlowReport flows[kFlows];
  std::atomic<uint32_t> has_problem;
  char problem[240];                 // the first error found
  std::atomic<uint64_t> iterations;  // of the main loop
  char doing[64];                    // the last command taken
};

}  // namespace verbena::crash
