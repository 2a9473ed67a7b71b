// SPDX-License-Identifier: BSD-2-Clause
#include "engine/objects/index_pool.h"

namespace verbena {

bool IndexPool::take(uint32_t* index) {
  std::lock_guard lock(mutex_);
  if (next_ < limit_ && free_.size() - oldest_ < 64) {
    *index = next_++;
    return true;
  }
  if (oldest_ < free_.size()) {
    *index = free_[oldest_++];
    if (oldest_ > 1024 && oldest_ * 2 > free_.size()) {
      free_.erase(free_.begin(), free_.begin() + static_cast<long>(oldest_));
      oldest_ = 0;
    }
    return true;
  }
  return false;
}

void IndexPool::give(uint32_t index) {
  std::lock_guard lock(mutex_);
  free_.push_back(index);
}

}  // namespace verbena
