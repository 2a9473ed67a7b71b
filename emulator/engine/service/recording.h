// SPDX-License-Identifier: BSD-2-Clause
//
// Attaches the recorder (record/recorder.h) while an instrument of the node wants records
// (fabric/instruments.h).
#pragma once

#include <cstdint>
#include <mutex>

#include "fabric/instruments.h"
#include "fabric/node_membership.h"

namespace verbena {

class Recording {
 public:
  // Looks what is wanted, if it may have changed. Returns when to call again, ns of CLOCK_MONOTONIC;
  // kEndOfTime: when the process is kicked.
  int64_t follow(const NodeMembership& membership);
  // The process leaves the node.
  void end();
  // In the child of fork(2): nothing is recorded, and the ring is the parent's.
  static void forget();

 private:
  // Into a new ring from now on. If there is no space for it, the ring that there is stays.
  void begin(const NodeMembership& membership, const RecordWish& wish);
  bool is_outdated(const NodeMembership& membership, const RecordWish& wish) const;
  void detach();

  std::mutex mutex_;
  uint64_t entries_ = 0;         // of the instruments, as they were last looked at, in one number
  int64_t look_at_ = INT64_MAX;  // ns: not before, while these stay the same
  uint64_t wish_ = 0;            // what is recorded now
  uint64_t refused_size_ = 0;    // of a larger ring that there was no space for
  bool is_attached_ = false;
};

}  // namespace verbena
