// SPDX-License-Identifier: BSD-2-Clause
//
// The process-private half of a completion queue. The half that peers see lies in the segment
// (adapter/layout.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "adapter/completion_ring.h"
#include "adapter/known_region.h"
#include "adapter/locks.h"
#include "engine/objects/context_use.h"

namespace verbena {

class Process;
struct CompChannel;

struct Cq {
  ContextUse context;
  Process* process = nullptr;
  uint32_t index = 0;
  SharedCq* shared = nullptr;
  OwnCompletionRing ring;
  std::mutex resize_mutex;  // before every other lock
  struct RingMemory {
    uint64_t offset;
    uint64_t bytes;
  };
  RingMemory ring_memory{};           // of the present ring
  std::vector<RingMemory> old_rings;  // of the rings before the present one; freed when they are consumed
  uint64_t user_handle = 0;
  uint32_t flags = 0;  // CqFlags
  bool ignore_overrun = false;
  // ns: when the event that moderation holds back is due; 0: none. Under Process::serving_mutex.
  int64_t moderated_until = 0;
  CompChannel* channel = nullptr;
  std::atomic<uint32_t> users{0};  // queue pairs; twice for one that sends and receives here

  BiasedLock lock;  // polling and purging
  CompletionConsumer consumer;
  KnownRegion scattered;                    // the region that eager data went to last
  std::atomic<bool> rendezvous_due{false};  // of some SRQ with tags (TagMatching::rendezvous)
  std::atomic<uint32_t> empty_polls{0};
  std::atomic<int64_t> look_again_at{
      0};  // ns: do not look at a stream's next entry before (engine/completion/streaming.h)

  std::atomic<bool> failed{false};        // overrun
  std::atomic<uint32_t> async_events{0};  // raised so far
  std::atomic<uint32_t> comp_events{0};   // read by the program so far
  std::atomic<uint64_t> told_to{0};  // the ring's end when an event was read: it told of what lies before
};

}  // namespace verbena
