// SPDX-License-Identifier: BSD-2-Clause
//
// The owner's half of a receive queue with several requesters (adapter/shared_receive_ring.h): an SRQ of the
// program (ibv_create_srq(3)), or the receive queue of a UD queue pair.
//
// Locks: Srq::lock comes after Cq::lock (polling frees slots). No CQ lock is taken while Srq::lock is held.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "adapter/shared_receive_ring.h"
#include "adapter/spin_lock.h"
#include "engine/objects/context_use.h"

namespace verbena {

class Process;
struct Cq;
struct Pd;
struct Xrcd;

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
  SpinLock lock;               // for posting and for freeing slots
  std::vector<uint32_t> free;  // the last one is used next
  uint32_t issued = 0;         // slots that are in use or in `free`: those below this number
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
  Cq* cq = nullptr;  // XRC
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
