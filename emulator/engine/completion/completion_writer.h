// SPDX-License-Identifier: BSD-2-Clause
//
// The one place where CQEs are appended: to a CQ of this process or of a peer, for send and receive queues,
// for requests that succeed, fail or are flushed. A CQE is claimed, written and published here, and an
// overrun is handled here. The event of the CQ follows (completion.h).
//
// Callers that need the position of the CQE before its bytes are in place (responder, datagrams) claim and
// publish in two steps. The others call append_completion().
#pragma once

#include <cstdint>
#include <cstring>

#include "adapter/completion_ring.h"
#include "engine/completion/completion.h"
#include "fabric/peer_adapter.h"
#include "observe/observer.h"

namespace verbena {

// A CQ as one of its producers sees it. `Ring` is CompletionRing (a peer's CQ) or OwnCompletionRing.
template <typename Ring>
struct CqProducer {
  Ring& ring;
  SharedCq& cq;
  PeerAdapter& adapter;  // where the CQ lies
  uint32_t worker;       // Worker::pack() of the process that claims the CQE
};

// The fields of a CQE. The caller writes a payload, if any, before publish_cqe().
struct Completion {
  uint32_t qp_index;  // in the table of the CQ's owner; with kCqeXrc: of the SRQ
  uint32_t qp_incarnation;
  uint32_t index;  // low 32 bits of the WQE's running number, or with kCqeFromShared its slot
  uint32_t byte_len = 0;
  uint32_t immediate = 0;  // network byte order; or the invalidated rkey
  uint8_t status = 0;      // enum ibv_wc_status
  uint8_t opcode = 0;      // enum ibv_wc_opcode without IBV_WC_RECV
  uint8_t flags = 0;       // CqeFlags
  uint8_t vendor_err = 0;
};

// The outcome of a claim.
enum class Room : uint8_t {
  kClaimed,  // an entry is claimed
  kIgnored,  // the CQ is full and ignores overruns: the completion is lost, and nothing else happens
  kOverrun,  // the CQ is full and fails; its owner has been told
};

struct ClaimedCqe {
  Claim claim;
  Room room = Room::kClaimed;
};

// The CQ is full.
template <typename Ring>
Room no_room(const CqProducer<Ring>& to) {
  if (to.ring.ignores_overrun()) return Room::kIgnored;
  to.cq.overrun.store(1, std::memory_order_release);
  to.adapter.report(to.cq);
  return Room::kOverrun;
}

// Claims an entry, and handles an overrun. For a peer's CQ the caller holds a hazard guard on its adapter.
template <typename Ring>
[[gnu::always_inline]] inline ClaimedCqe claim_cqe(const CqProducer<Ring>& to) {
  const Claim claim = claim_completion(to.ring, to.worker);
  if (claim.entry != nullptr) [[likely]]
    return {claim};
  return {claim, no_room(to)};
}

[[gnu::always_inline]] inline void write_cqe(Cqe& entry, const Completion& completion) {
  entry.qp_index = completion.qp_index;
  entry.qp_incarnation = completion.qp_incarnation;
  entry.index = completion.index;
  entry.byte_len = completion.byte_len;
  entry.immediate = completion.immediate;
  entry.status = completion.status;
  entry.opcode = completion.opcode;
  entry.flags = completion.flags;
  entry.vendor_err = completion.vendor_err;
}

// Every CQE is published here.
template <typename Ring>
[[gnu::always_inline]] inline void publish_cqe(const CqProducer<Ring>& to, const Claim& claim, CqeKind kind) {
  if (Observer* const seen = observer(); seen != nullptr) [[unlikely]] {
    const Cqe& entry = *claim.entry;
    seen->on_completion(
        {entry.qp_index, entry.byte_len, entry.status, entry.opcode, entry.flags, entry.vendor_err});
  }
  publish_completion(to.ring, claim, kind);
}

// Claims, writes and publishes a CQE whose payload is `payload` (wr_id of a send completion, source of a
// datagram or an XRC message). The caller raises the event.
template <typename Ring, typename Payload>
[[gnu::always_inline]] inline Room append_without_event(const CqProducer<Ring>& to,
                                                        const Completion& completion,
                                                        const Payload& payload) {
  // Not claim_cqe(): copying a claim as a whole right after its parts were stored is slow.
  const Claim claim = claim_completion(to.ring, to.worker);
  if (claim.entry == nullptr) [[unlikely]]
    return no_room(to);
  static_assert(sizeof payload <= kCqeFirstLine);
  write_cqe(*claim.entry, completion);
  std::memcpy(claim.entry->payload, &payload, sizeof payload);
  publish_cqe(to, claim, CqeKind::kPublished);
  return Room::kClaimed;
}

// The same, and raises the event. `solicited_or_error`: even if the CQ is armed for solicited completions
// only.
template <typename Ring, typename Payload>
Room append_completion(const CqProducer<Ring>& to, const Completion& completion, const Payload& payload,
                       bool solicited_or_error) {
  const Room room = append_without_event(to, completion, payload);
  if (room == Room::kClaimed) raise_completion_event(to.cq, to.adapter, solicited_or_error);
  return room;
}

}  // namespace verbena
