// SPDX-License-Identifier: BSD-2-Clause
//
// A receive queue with many producers in plain memory.
#pragma once

#include <vector>

#include "adapter/shared_receive_ring.h"

namespace verbena {

class SharedRingOfOwn {
 public:
  static constexpr uint64_t kSize = 1 << 20;

  // 2^order slots, two entries to a list; order up to 8.
  explicit SharedRingOfOwn(uint32_t order) : view_(pages_[0].bytes, kSize) {
    shared.order = order;
    shared.max_sge = 2;
    shared.stride = sizeof(ReceiveWqe) + 2 * sizeof(WqeSge);
    shared.order_offset = 4096;
    shared.wqe_offset = 16384;
    shared.bounce_offset = 65536;
  }
  SharedRingOfOwn(const SharedRingOfOwn&) = delete;
  SharedRingOfOwn& operator=(const SharedRingOfOwn&) = delete;

  SharedReceiveRing ring() { return SharedReceiveRing::of(view_, shared); }

  // The slot taken, or -1.
  int64_t take(uint32_t worker) {
    uint32_t slot;
    return ring().take(worker, &slot) ? int64_t{slot} : -1;
  }

  // Doubles the queue, as its owner does.
  void grow() {
    const uint32_t count = shared.growths.load();
    const uint64_t added = ring().slots();
    shared.growth_offset = kGrowthTable;
    auto* table = view_.at<SrqGrowth>(kGrowthTable, kMaxSrqGrowths);
    table[count] = {shared.posted.load(), next_, next_ + 4 * added * sizeof(OrderEntry), 0};
    table[count].bounce_offset = table[count].wqe_offset + added * shared.stride;
    next_ = (table[count].bounce_offset + added * kBounceSize + 63) / 64 * 64;
    shared.growths.store(count + 1);
  }
  SrqGrowth& growth(uint32_t index) { return view_.at<SrqGrowth>(kGrowthTable, kMaxSrqGrowths)[index]; }

  SharedSrq shared{};

 private:
  static constexpr uint64_t kGrowthTable = 40960;
  uint64_t next_ = 262144;

  struct alignas(4096) Page {
    std::byte bytes[4096];
  };
  std::vector<Page> pages_{kSize / sizeof(Page)};
  SegmentView view_;
};

}  // namespace verbena
