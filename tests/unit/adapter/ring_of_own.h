// SPDX-License-Identifier: BSD-2-Clause
//
// A completion ring in plain memory, with the consumer and a table of the processes that are alive.
#pragma once

#include <set>
#include <vector>

#include "adapter/completion_ring.h"

namespace verbena {

class RingOfOwn {
 public:
  explicit RingOfOwn(uint32_t order) : entries_(size_t{1} << order), claims_(size_t{1} << order) {
    ring.cq = &shared_;
    ring.places = &shared_.rings[0];
    ring.entries = entries_.data();
    ring.claims = claims_.data();
    ring.order = order;
    ring.known_head = &known_head_;
    consumer.begin(
        ring,
        [](void* self, uint32_t worker) { return !static_cast<RingOfOwn*>(self)->dead.contains(worker); },
        this);
  }
  RingOfOwn(const RingOfOwn&) = delete;
  RingOfOwn& operator=(const RingOfOwn&) = delete;

  // Claims and fills an entry; the consumer tells entries apart by `qp` and `index`.
  Claim claim(uint32_t worker, uint32_t qp, uint32_t index) {
    const Claim claimed = claim_completion(ring, worker);
    if (claimed.entry != nullptr) {
      claimed.entry->qp_index = qp;
      claimed.entry->index = index;
    }
    return claimed;
  }
  bool append(uint32_t worker, uint32_t qp, uint32_t index, CqeKind kind = CqeKind::kPublished) {
    const Claim claimed = claim(worker, qp, index);
    if (claimed.entry != nullptr) publish_completion(ring, claimed, kind);
    return claimed.entry != nullptr;
  }

  // Takes and consumes one entry; its index, or -1.
  int64_t next(bool* eager = nullptr) {
    bool unscattered = false;
    const Cqe* entry = consumer.take(&unscattered, true);
    if (eager != nullptr) *eager = unscattered;
    const int64_t index = entry != nullptr ? static_cast<int64_t>(entry->index) : -1;
    if (entry != nullptr) consumer.consume();
    consumer.finish();
    return index;
  }
  // Everything that can be taken now.
  std::vector<int64_t> drain() {
    std::vector<int64_t> all;
    for (int64_t index; (index = next()) >= 0;) all.push_back(index);
    return all;
  }

  CompletionRing ring;
  CompletionConsumer consumer;
  std::set<uint32_t> dead;

 private:
  SharedCq shared_{};
  std::vector<Cqe> entries_;
  std::vector<std::atomic<uint64_t>> claims_;
  std::atomic<uint64_t> known_head_{0};
};

}  // namespace verbena
