// SPDX-License-Identifier: BSD-2-Clause
//
// Indices of a table in the segment. The index freed longest ago is given first. Any thread.
#pragma once

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

 private:
  std::mutex mutex_;
  std::vector<uint32_t> free_;
  size_t oldest_ = 0;
  uint32_t next_ = 0;
  uint32_t limit_;
};

}  // namespace verbena
