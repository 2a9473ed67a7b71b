// SPDX-License-Identifier: BSD-2-Clause
//
// The objects of one device on the node, as the kernel lists them (drivers/infiniband/core/restrack.c): each
// has a number that no other object of its kind on the node has.
#pragma once

#include <cstdint>
#include <vector>

#include "survey/snapshot.h"

namespace verbena::nldev {

struct Domain {
  uint32_t number = 0;
  uint64_t users = 0;  // queue pairs, SRQs and memory regions
  uint32_t context = 0;
  int32_t pid = 0;
};

struct Context {
  uint32_t number = 0;
  int32_t pid = 0;
};

struct CompletionQueue {
  uint32_t number = 0;
  uint32_t entries = 0;
  uint64_t users = 0;  // send and receive queues
  uint32_t context = 0;
  int32_t pid = 0;
};

struct QueuePair {
  const QpSnapshot* qp = nullptr;
  uint32_t domain = 0;
  int32_t pid = 0;
};

struct MemoryRegion {
  uint32_t number = 0;
  const MrSnapshot* mr = nullptr;
  uint32_t domain = 0;
  int32_t pid = 0;
};

struct SharedReceiveQueue {
  uint32_t number = 0;
  const SrqSnapshot* srq = nullptr;
  uint32_t domain = 0;
  uint32_t cq = 0;                    // XRC
  std::vector<uint32_t> queue_pairs;  // sorted numbers
  int32_t pid = 0;
};

struct CmId {
  uint32_t number = 0;
  const CmIdSnapshot* id = nullptr;
  int32_t pid = 0;
};

struct Objects {
  NodeSnapshot node;  // what the pointers below point into
  std::vector<Domain> domains;
  std::vector<Context> contexts;
  std::vector<CompletionQueue> completion_queues;
  std::vector<QueuePair> queue_pairs;
  std::vector<MemoryRegion> memory_regions;
  std::vector<SharedReceiveQueue> shared_receive_queues;
  std::vector<CmId> cm_ids;  // those with this device; listeners on every address belong to all
};

// Reads the node, and collects the objects of `device`. Waits at most 2 s for processes that do not answer.
void collect(const std::string& node, uint32_t device, Objects* out);

}  // namespace verbena::nldev
