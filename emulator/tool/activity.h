// SPDX-License-Identifier: BSD-2-Clause
//
// What happened on nodes between two looks at them: rates of queue pairs and of processes.
// Pure functions of snapshots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "survey/snapshot.h"

namespace verbena::tool {

// Per second.
struct Rates {
  double requests_out = 0;
  double bytes_out = 0;
  double requests_in = 0;
  double bytes_in = 0;
  double rnr_naks = 0;
  double retries = 0;

  Rates& operator+=(const Rates& other);
};

struct QpActivity {
  size_t node = 0;     // index in the later look
  size_t process = 0;  // index in NodeSnapshot::processes
  size_t qp = 0;       // index in ProcessSnapshot::qps
  Rates rates;
  double cq_fill = 0;  // 0 to 1: of the fuller one of its two CQs
};

struct ProcessActivity {
  size_t node = 0;
  size_t process = 0;
  Rates rates;
  double cq_fill = 0;  // of its fullest CQ
  uint64_t sends_outstanding = 0;
  uint64_t receives_posted = 0;  // of its queue pairs and SRQs
};

struct Activity {
  double seconds = 0;  // between the looks; 0: there was one look only, and all rates are 0
  std::vector<ProcessActivity> processes;
  std::vector<QpActivity> qps;
};

// A node, process or queue pair that `before` has not is new: its counts began with 0. An empty `before`
// gives no rates.
Activity activity_between(const std::vector<NodeSnapshot>& before, const std::vector<NodeSnapshot>& now);

enum class SortBy : uint8_t { kBytes, kRequests, kRetries, kSendQueue, kCqFill, kPid };
inline constexpr size_t kSortings = 6;
const char* word_of(SortBy order);                         // "bytes", ...
bool parse_sorting(const std::string& word, SortBy* out);  // false: it is none

// The largest first, except for kPid. Equal ones keep their order.
void sort_activity(const std::vector<NodeSnapshot>& now, SortBy order, bool reversed, Activity* activity);

}  // namespace verbena::tool
