// SPDX-License-Identifier: BSD-2-Clause
#include "cm/port_chain.h"

namespace verbena::cm {
namespace {

// One pass of a walk. False: the chain has changed, and the walk must begin again. `all` may be nullptr.
bool try_walk(IdTableFile& file, uint32_t bucket, std::vector<Chained>* all, uint64_t* head) {
  if (all != nullptr) all->clear();
  std::atomic<uint64_t>* link = &file.buckets[bucket];
  uint64_t here = link->load(std::memory_order_seq_cst);
  *head = here;
  for (uint32_t steps = 0; steps < 2 * kMaxNodeIds; ++steps) {
    const uint32_t next = Link::unpack(here).next;
    if (next == 0 || next > kMaxNodeIds) return true;
    const uint32_t index = next - 1;
    IdEntry& entry = file.ids[index];
    const uint64_t beyond = entry.link.load(std::memory_order_seq_cst);
    if (link->load(std::memory_order_seq_cst) != here) return false;
    if (Link::unpack(beyond).leaving) {
      const uint64_t around = Link{Link::unpack(here).tag + 1, false, Link::unpack(beyond).next}.pack();
      if (!link->compare_exchange_strong(here, around, std::memory_order_seq_cst)) return false;
      if (link == &file.buckets[bucket]) *head = around;  // unchanged by other processes
      here = around;
      continue;
    }
    if (all != nullptr) {
      const uint64_t state = file.id_states[index].load(std::memory_order_acquire);
      const IdFacts facts = read_facts(entry);
      // Its link changes before the entry gets another use.
      if (entry.link.load(std::memory_order_seq_cst) != beyond) return false;
      all->push_back({index, state, facts});
    }
    link = &entry.link;
    here = beyond;
  }
  return true;  // a cycle: another process has damaged the chain; the result is what was found so far
}

}  // namespace

uint32_t bucket_of(PortSpace space, uint16_t port) {
  return ((static_cast<uint32_t>(space) << 16 | port) * 0x9e3779b1u) >> 17;
}
static_assert(kPortBuckets == 1u << (32 - 17));

uint64_t walk(IdTableFile& file, uint32_t bucket, std::vector<Chained>* all) {
  uint64_t head;
  while (!try_walk(file, bucket, all, &head)) {
  }
  return head;
}

bool chain_in(IdTableFile& file, uint32_t bucket, uint32_t index, uint64_t head) {
  IdEntry& entry = file.ids[index];
  entry.bucket.store(bucket + 1, std::memory_order_seq_cst);
  // A sweeper of the entry's last use may still be about to mark it: by compare-and-swap, as here.
  uint64_t mine = entry.link.load(std::memory_order_seq_cst);
  while (!entry.link.compare_exchange_weak(
      mine, Link{Link::unpack(mine).tag + 1, false, Link::unpack(head).next}.pack(),
      std::memory_order_seq_cst)) {
  }
  const uint64_t with_it = Link{Link::unpack(head).tag + 1, false, index + 1}.pack();
  return file.buckets[bucket].compare_exchange_strong(head, with_it, std::memory_order_seq_cst);
}

void disturb(IdTableFile& file, uint32_t bucket) {
  uint64_t head = file.buckets[bucket].load(std::memory_order_seq_cst);
  uint64_t later;
  do {
    later = Link{Link::unpack(head).tag + 1, false, Link::unpack(head).next}.pack();
  } while (!file.buckets[bucket].compare_exchange_weak(head, later, std::memory_order_seq_cst));
}

void chain_out(IdTableFile& file, uint32_t index, uint64_t state) {
  IdEntry& entry = file.ids[index];
  for (;;) {
    uint64_t mine = entry.link.load(std::memory_order_seq_cst);
    const uint32_t bucket = entry.bucket.load(std::memory_order_seq_cst);
    if (file.id_states[index].load(std::memory_order_seq_cst) != state) return;
    if (bucket == 0 || bucket > kPortBuckets) return;
    const Link link = Link::unpack(mine);
    if (!link.leaving && !entry.link.compare_exchange_strong(mine, Link{link.tag + 1, true, link.next}.pack(),
                                                             std::memory_order_seq_cst))
      continue;
    uint64_t head;
    while (!try_walk(file, bucket - 1, nullptr, &head)) {
    }
    return;
  }
}

}  // namespace verbena::cm
