// SPDX-License-Identifier: BSD-2-Clause
//
// The part of a segment in which peers explain to the owner why they did not carry out a request on its
// memory. The peer is the one that executes the request, and knows; the owner's log is where its programmer
// looks. The owner's service thread takes the explanations out and logs them.
//
// A peer never waits: if the ring is full, the explanation is only counted. A peer that dies while it writes
// leaves an entry that nobody takes; the owner frees it when that process is gone.
#pragma once

#include <atomic>
#include <cstdint>

#include "adapter/layout.h"

namespace verbena {

enum class RefusalKind : uint8_t {
  kRequest,      // of a responder: RequestRefusal::vendor_err says why
  kNoReceive,    // UC and UD: dropped, there is no receive request
  kNoSpace,      // UD: dropped, the oldest receive request is too small for GRH and message
  kOtherQkey,    // UD: dropped for its Q_Key
  kOtherSource,  // the queue pair is connected to another one
  kOtherPsn,     // it expects another PSN
  kNotReady,     // it is in a state in which it takes no requests
  // Stray datagrams. `qpn` is the first of `expected` UD queue pairs that may wait for it, `got` the number
  // that it is for.
  kNoQueuePair,  // no queue pair has the number
  kNoDatagrams,  // the queue pair is no UD queue pair, not ready, or at another device
};

// One explanation. Fields that say nothing for its kind are 0.
struct RequestRefusal {
  RefusalKind kind;
  uint8_t opcode;      // enum ibv_wr_opcode
  uint8_t vendor_err;  // enum class VendorError
  bool is_remote;      // from another node: `source_address`; else `source_pid`
  uint32_t qpn;        // the responder's queue pair
  uint32_t source_qpn;
  int32_t source_pid;
  uint8_t source_address[16];  // IPv6, or IPv4 mapped into it
  // What the request wanted.
  uint64_t address;
  uint32_t length;
  uint32_t key;  // rkey, or the lkey of the receive request
  // What the responder has for the key.
  bool key_is_known;
  uint8_t max_dest_rd_atomic;
  uint16_t reserved;
  uint32_t region_access;  // IBV_ACCESS_*; for a right of the queue pair: its qp_access_flags
  uint64_t region_begin;   // as requesters address it
  uint64_t region_length;
  uint32_t region_pd;
  uint32_t qp_pd;
  // What it expects, and what came: PSNs, Q_Keys, QP numbers, bytes. kNotReady: `expected` is its state.
  uint32_t expected;
  uint32_t got;
  uint32_t count;  // of such refusals by this queue pair so far; 0: not counted
  uint32_t reserved2;
};
static_assert(sizeof(RequestRefusal) == 96);

struct RefusalEntry {
  static constexpr uint64_t kFree = 0, kWritten = 1;
  // kFree; kWritten; or Worker::pack() << 8 of the process that writes it.
  alignas(2 * kCacheLine) std::atomic<uint64_t> state;
  uint64_t number;  // in the order in which they came
  RequestRefusal refusal;
};
static_assert(sizeof(RefusalEntry) == 2 * kCacheLine);

struct Refusals {
  static constexpr uint32_t kEntries = 31;
  alignas(2 * kCacheLine) std::atomic<uint64_t> count;  // ever added
  std::atomic<uint64_t> lost;                           // for which there was no entry
  RefusalEntry entries[kEntries];

  // Peer `worker`. False: the ring is full.
  bool add(const RequestRefusal& refusal, uint32_t worker);

  // Owner: takes the oldest one. False: there is none. is_gone(worker): the process has ended.
  template <typename IsGone>
  bool take(RequestRefusal* out, IsGone&& is_gone) {
    RefusalEntry* oldest = nullptr;
    for (RefusalEntry& entry : entries) {
      uint64_t state = entry.state.load(std::memory_order_acquire);
      if (state != RefusalEntry::kFree && state != RefusalEntry::kWritten &&
          is_gone(static_cast<uint32_t>(state >> 8)))
        entry.state.compare_exchange_strong(state, RefusalEntry::kFree);
      if (state == RefusalEntry::kWritten && (oldest == nullptr || entry.number < oldest->number))
        oldest = &entry;
    }
    if (oldest == nullptr) return false;
    *out = oldest->refusal;
    oldest->state.store(RefusalEntry::kFree, std::memory_order_release);
    return true;
  }
};
static_assert(sizeof(Refusals) == 4096);
static_assert(kRefusalsOffset + sizeof(Refusals) <= kQpTableOffset);

}  // namespace verbena
