// SPDX-License-Identifier: BSD-2-Clause
//
// What the responder does with a request. The requester carries it out on the shared state of the responder.
// The caller holds a hazard guard (hazard_guard.h) and has found the responder ready (check_path()). The
// calls do not wait.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <utility>

#include "adapter/clock.h"
#include "adapter/prefetch.h"
#include "adapter/traffic.h"
#include "engine/completion/completion_writer.h"
#include "engine/objects/process.h"
#include "engine/objects/request.h"
#include "engine/objects/requester_context.h"
#include "engine/rules/psn.h"
#include "engine/rules/send_rules.h"
#include "fabric/port_counters.h"

namespace verbena {

enum class Answer : uint8_t {
  kAck,      // done
  kPartial,  // a chunk is done (Request::done): to be called again
  kRnr,      // no receive WQE
  kNak,      // refused for `error`; the responder has been told
  kSilence,  // failed; the responder has been told, and the requester waits for an answer until its time is
             // over
  kLocal,    // nothing has happened: the requester's own memory failed
  kGone,     // the process is gone
  kBusy,     // another requester is in the middle of an atomic on this word: to be called again
};

struct Response {
  Answer answer;
  VendorError error = VendorError::none;
};

// The requester's bytes: their ranges in this process.
struct LocalBytes {
  const iovec* ranges;
  size_t count;
  // READ and atomics: why the response cannot be placed. Reported only after the responder has answered.
  VendorError error = VendorError::none;
};

// The responder refuses a request before it has taken a receive WQE. Its QP is told, and goes to ERR.
Response refuse(RequesterContext& requester, const Request& request, VendorError error);

// A receive completion of `there` gets this error. For `verbena status`.
inline void note_receive_error(const NodeDirectory& directory, SharedQp& there, ibv_wc_status status,
                               VendorError error) {
  count_event(directory, there, HwCounter::kReceiveErrors);
  if (status == IBV_WC_LOC_LEN_ERR) count_event(directory, there, HwCounter::kReceiveLengthErrors);
  there.receive_error.store(ErrorWord{static_cast<uint8_t>(status), static_cast<uint8_t>(error), true}.pack(),
                            std::memory_order_relaxed);
  there.receive_error_time.store(wall_clock_ns(), std::memory_order_release);
}

// `local`: for SEND and WRITE the bytes to send, for READ and atomics the place for the response.
Response respond(RequesterContext& requester, const SendOperation& operation, Request& request,
                 const LocalBytes& local);

// Raises the event of the receive completion that was appended last. When: raise_both_events() in
// send_completion.h.
inline void raise_event_due(PeerPath& path) {
  if (const uint8_t due = std::exchange(path.event_due, 0); due != 0)
    raise_completion_event(*path.completion_queue, *path.memory, due == 2);
}

// ---- parts of it, for requests that need no more (small_send.cc) ----

// The fields of a receive completion.
struct Arrival {
  unsigned flags;  // ibv_send_flags
  uint32_t length;
  uint32_t immediate;  // or the rkey that was invalidated
  ibv_wc_opcode opcode;
  bool with_immediate;
  bool with_invalidate = false;
  ibv_wc_status status = IBV_WC_SUCCESS;
  VendorError error = VendorError::none;
  const uint64_t* bounced_at = nullptr;  // the position of its bytes, if they are in the bounce ring
};

// The CQ of the receive completions, as the requester appends to it.
inline CqProducer<CompletionRing> receive_cq(RequesterContext& requester) {
  PeerPath& path = requester.path;
  return {path.completions, *path.completion_queue, *path.memory, requester.process->membership().worker()};
}

// Appends the receive completion of WQE `path.taken`. `payload`: the bytes of the message, if they are in the
// CQE. `eager`: they are in the CQE, in the bounce buffer of the slot or in the bounce ring. False: the CQ is
// full and the completion is lost; the CQ fails unless it ignores overruns.
bool complete_receive(RequesterContext& requester, const Arrival& arrival, bool eager,
                      const uint8_t* payload);

// Shared receive queue: the current message has taken the WQE in `slot`, and is not complete. Not for XRC.
inline void keep_taken_wqe(PeerPath& path, uint32_t slot) {
  path.current_wqe = slot + 1;
  path.qp->srq_slot.store(path.current_wqe, std::memory_order_release);
}

// Are the keys of a receive WQE still valid, as they were when it was posted?
inline bool prevalidated(const PeerPath& path, const ReadyWord& ready) {
  const uint32_t epoch = path.memory->view().header().mr_epoch.load(std::memory_order_acquire) & 0xffffff;
  return ready.epoch == epoch && epoch != ReadyWord::kNeverValid;
}

// A request of `length` bytes in `packets` packets was carried out.
inline void count_request(RequesterContext& requester, Passing passing, uint32_t length, uint64_t packets) {
  SharedQp& qp = *requester.path.qp;
  qp.expected_psn.store(psn_add(requester.psn, packets), std::memory_order_relaxed);
  count_passing(qp.requests_in, qp.bytes_in, qp.packets_in, passing, length, packets);
}

// The receive WQE is used up.
inline void count_taken(PeerPath& path) {
  ++path.taken;
  path.qp->rq_taken.store(path.taken, std::memory_order_relaxed);
}

// A message lies in the completion entry at `position`, or in the receive slot, until that entry is polled.
inline void note_eager(PeerPath& path, uint64_t position) {
  const uint32_t generation = path.completions.generation;
  if (!path.has_eager || path.eager_generation != generation) path.first_eager_position = position;
  path.eager_generation = generation;
  path.has_eager = true;
  path.last_eager_position = position;
}

// Prefetches the place of the message after the next, as in a stream. Not entries that the consumer still
// polls.
inline void prepare_next(PeerPath& path, const Claim& claim, uint32_t length, bool in_entry) {
  constexpr uint64_t kAhead = 8;
  const CompletionRing& ring = path.completions;
  const uint64_t next = claim.position + kAhead;
  if (ring.order < 6 || next - ring.known_head->load(std::memory_order_relaxed) >= ring.capacity()) return;
  Cqe& later = ring.entry(next);
  prefetch_exclusive(&later);
  if (in_entry) {
    if (length > kCqeFirstLine) prefetch_exclusive(&later.payload[kCqeInlineSize - 1]);
  } else if (length <= kBounceSize && path.receives.order >= 6) {
    std::byte* bounce = path.receives.bounce(path.taken + kAhead);
    for (uint32_t at = 0; at < length; at += kCacheLine) prefetch_exclusive(bounce + at);
  }
}

// After a long copy, whose last stores are still under way: takes the lines that its completion will be
// written to. The locked instruction that claims the entry waits for the stores anyway.
inline void prepare_completion(const PeerPath& path) {
  const CompletionRing& ring = path.completions;
  const uint64_t next = ring.places->tail.load(std::memory_order_relaxed);
  prefetch_exclusive(&ring.places->tail);
  prefetch_exclusive(&ring.claims[ring.place(next)]);
  prefetch_exclusive(&ring.entry(next));
}

}  // namespace verbena
