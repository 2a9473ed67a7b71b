// SPDX-License-Identifier: BSD-2-Clause
#include "engine/ethernet/rss_table.h"

#include <algorithm>

namespace verbena {

bool read_rss_table(const SegmentView& segment, const SharedQp& qp, RssTable* out) {
  const auto once = [](const auto& field) {
    using Field = std::remove_cvref_t<decltype(field)>;
    return std::atomic_ref(const_cast<Field&>(field)).load(std::memory_order_relaxed);
  };
  const uint64_t offset = once(qp.rq_wqe_offset);
  if (once(qp.rq_ready_offset) != 0 || once(qp.srq) != 0 || offset == 0) return false;
  const auto* const shared = segment.at<SharedRssTable>(offset);
  if (shared == nullptr) return false;
  const uint32_t log_size = once(shared->log_size);
  if (log_size > 9) return false;
  const auto* const queues = segment.at<RssQueue>(offset + sizeof(SharedRssTable), uint64_t{1} << log_size);
  if (queues == nullptr) return false;
  out->fields = once(shared->fields);
  out->key = shared->key;
  out->queues.assign(queues, queues + (size_t{1} << log_size));
  return true;
}

}  // namespace verbena
