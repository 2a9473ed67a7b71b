// SPDX-License-Identifier: BSD-2-Clause
//
// The owner's half of a receive queue with several requesters (adapter/shared_receive_ring.h): an SRQ of the
// program (ibv_create_srq(3)), or the receive queue of a UD queue pair.
//
// Locks: Srq::lock comes after Cq::lock (polling frees slots). No CQ lock is taken while Srq::lock is held.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "adapter/completion_ring.h"
#include "adapter/known_region.h"
#include "adapter/locks.h"
#include "adapter/shared_receive_ring.h"
#include "adapter/tag_list.h"
#include "engine/objects/context_use.h"

namespace verbena {

class Process;
struct Cq;
struct Pd;
struct Srq;
struct Xrcd;

// Fetches the messages of matched requests for a rendezvous. The send queue lies in a folder above
// (post/rendezvous.h).
class Rendezvous {
 public:
  // Starts what TagMatching::rendezvous has, as far as there is room. The caller holds no lock but
  // Process::serving_mutex.
  virtual void start(Srq& srq) = 0;

 protected:
  ~Rendezvous() = default;
};

// What the queue pair tells the peer then: a message of two headers.
inline constexpr uint32_t kRendezvousInline = 32;  // bytes

// The owner's half of the tags of an SRQ (IBV_SRQT_TM). All under Srq::lock.
struct TagMatching {
  TagList list;
  struct Entry {
    uint64_t number = 0;  // of the tag; 0: free
    uint64_t wr_id = 0;
    ibv_sge sge{};
    // Of a rendezvous under way: the queue pair that fetches the message, and how much.
    uint32_t qp_index = UINT32_MAX;
    uint32_t qp_incarnation = 0;
    uint32_t length = 0;
  };
  std::vector<Entry> entries;
  std::vector<uint32_t> free;        // the last one is used next
  std::vector<uint32_t> rendezvous;  // entries whose messages are to be fetched
  uint64_t posted = 0;               // number of the newest tag
  uint16_t handled = 0;              // unexpected messages that the program has handled
  uint16_t polled = 0;               // unexpected messages whose completions were polled
  uint32_t operations = 0;           // completions of operations that were not polled
  uint32_t max_ops = 0;
  Rendezvous* starter = nullptr;
  CompletionRing completions;  // of Srq::cq, as this half appends to it
  std::atomic<uint64_t> known_head{0};
};

struct Srq {
  Process* process = nullptr;
  uint32_t index = 0;
  uint32_t pd_handle = 0;  // keys of receive requests must belong to it
  SharedSrq* shared = nullptr;
  SharedReceiveRing ring;

  // The owner's record of a slot.
  struct Slot {
    uint64_t wr_id;
    uint64_t position;  // in the order ring, + 1; 0: free
    uint32_t taker;     // Worker::pack(), kept when the order word was reused before the slot was freed
  };
  BiasedLock lock;                // for posting and for freeing slots
  std::vector<uint32_t> free;     // the last one is used next
  KnownRegion posted;             // of receive requests; under `lock`
  uint32_t issued = 0;            // slots that are in use or in `free`: those below this number
  std::atomic<uint32_t> room{0};  // the promised capacity of the queue: as many may be in use; under `lock`
  uint32_t in_use() const { return issued - static_cast<uint32_t>(free.size()); }  // under `lock`

  // The records of the slots. A record does not move when the queue grows: completions are polled meanwhile.
  std::vector<Slot> slots;  // that the queue was made with: a power of two
  std::array<std::unique_ptr<Slot[]>, kMaxSrqGrowths> grown_slots;  // as SrqGrowth
  Slot& slot(uint32_t number) {                                     // number < ring.slots()
    if (number < slots.size()) return slots[number];
    return grown_slots[static_cast<uint32_t>(std::bit_width(number)) - 1 - ring.order]
                      [number - std::bit_floor(number)];
  }

  // Memory in the segment, freed with the queue.
  struct Memory {
    uint64_t offset;
    uint64_t bytes;
  };
  std::vector<Memory> memory;
  std::mutex modify_mutex;  // ibv_modify_srq(3); before `lock`

  // ---- of an SRQ of the program ----
  ContextUse context;
  Pd* pd = nullptr;
  Cq* cq = nullptr;                   // XRC and tag matching
  std::unique_ptr<TagMatching> tags;  // nullptr: it matches none
  Xrcd* xrcd = nullptr;
  uint64_t user_handle = 0;
  std::atomic<uint32_t> users{0};  // queue pairs
  std::atomic<uint32_t> async_events{0};
  std::mutex qps_mutex;
  std::vector<uint32_t> qps;  // by table index; under qps_mutex
};

// Made by ibv_create_srq(3). Otherwise it is the receive queue of one QP.
inline bool is_of_program(const Srq& srq) { return srq.context != nullptr; }

}  // namespace verbena
