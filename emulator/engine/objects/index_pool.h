// SPDX-License-Identifier: BSD-2-Clause
//
// Indices of a table in the segment. The index freed longest ago is given first. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace verbena {

class IndexPool {
 public:
  explicit IndexPool(uint32_t limit) : limit_(limit) {}
  bool take(uint32_t* index);  // false: all are in use
  void give(uint32_t index);
  // Every index ever given is below this. Unlike the segment's high-water marks, it can be believed.
  uint32_t ever_taken() const { return next_.load(std::memory_order_acquire); }

 private:
  std::mutex mutex_;
  std::vector<uint32_t> free_;
  size_t oldest_ = 0;
  std::atomic<uint32_t> next_{0};  // written under the mutex
  uint32_t limit_;
};

}  // namespace verbena
