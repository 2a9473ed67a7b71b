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
    shared.wqe_offset = 8192;
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

  SharedSrq shared{};

 private:
  struct alignas(4096) Page {
    std::byte bytes[4096];
  };
  std::vector<Page> pages_{kSize / sizeof(Page)};
  SegmentView view_;
};

}  // namespace verbena
