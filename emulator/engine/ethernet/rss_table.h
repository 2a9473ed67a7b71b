// SPDX-License-Identifier: BSD-2-Clause
//
// The receiving half of an RSS queue pair: a table of work queues in the adapter's segment, which the senders
// of frames read. It does not change while the queue pair exists.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "adapter/segment.h"
#include "engine/rules/rss_hash.h"

namespace verbena {

struct RssQueue {
  uint32_t qp_index;  // the work queue's queue pair, of the same adapter
  uint32_t incarnation;
};

// In the segment, at SharedQp::rq_wqe_offset of a raw packet queue pair without a receive queue of its own.
struct SharedRssTable {
  uint64_t fields;  // enum ibv_rx_hash_fields
  std::array<uint8_t, kRssKeyBytes> key;
  uint32_t log_size;
  uint32_t reserved;
  RssQueue queues[];
};
static_assert(sizeof(SharedRssTable) == 56);

inline constexpr uint32_t kMostRssQueues = 512;

// A copy, for one sender.
struct RssTable {
  uint64_t fields = 0;
  std::array<uint8_t, kRssKeyBytes> key{};
  std::vector<RssQueue> queues;  // a power of two
};

// False: the queue pair has a receive queue instead, or the segment is damaged. Throws std::bad_alloc.
bool read_rss_table(const SegmentView& segment, const SharedQp& qp, RssTable* out);

}  // namespace verbena
