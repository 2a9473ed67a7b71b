// SPDX-License-Identifier: BSD-2-Clause
//
// What the far adapter does with a request: carried out by the initiator on the responder's shared state. The
// caller is on a visit (hazards.h) and has found the responder's gate open; nothing here waits.
#pragma once

#include <sys/uio.h>

#include <cstdint>

#include "engine/objects.h"

namespace verbena {

enum class Answer : uint8_t {
  kAck,      // done
  kPartial,  // a slice is done, SendRequest::done says how far; come again
  kRnr,      // no receive WQE
  kNak,      // refused: `error` says why; the responder knows of it already
  kLocal,    // nothing happened there: the initiator's own memory failed
  kGone,     // the process is gone
  kBusy,     // somebody else is in the middle of an atomic on this word; come again
};

struct Response {
  Answer answer;
  VendorError error = VendorError::none;
};

// The initiator's bytes: where they lie in this process.
struct LocalBytes {
  const iovec* ranges;
  size_t count;
  // READ and atomics: why the answer cannot be put there. Told only once the responder has answered.
  VendorError error = VendorError::none;
};

// The responder refuses a request without having taken a receive WQE: its QP is told, and goes to ERR.
Response refuse(PeerPath& path, VendorError error);

// `local`: gathered bytes for SEND and WRITE, the place for the answer for READ and atomics.
Response respond(Qp& initiator, const SendOperation& operation, SendRequest& request,
                 const LocalBytes& local);

// ---- parts of it, for requests that need no more (small_send.cc) ----

// What the receive completion says.
struct Arrival {
  unsigned flags;  // ibv_send_flags
  uint32_t length;
  uint32_t immediate;  // or the rkey that was invalidated
  ibv_wc_opcode opcode;
  bool with_immediate;
  bool with_invalidate = false;
  ibv_wc_status status = IBV_WC_SUCCESS;
  VendorError error = VendorError::none;
};

// Appends the receive completion of WQE `path.taken`. `payload`: the message's bytes, if they travel in the
// entry; `landed`: they travel there or in the slot's landing buffer. False: the CQ is full, the completion
// is lost, the CQ will fail.
bool complete_receive(Qp& initiator, PeerPath& path, const Arrival& arrival, bool landed,
                      const uint8_t* payload);

// Do the keys of a receive WQE still hold, as they did when it was posted?
bool prevalidated(const PeerPath& path, const ReadyWord& ready);

// A request of `length` bytes was carried out.
void count_request(Qp& initiator, uint32_t length);

}  // namespace verbena
