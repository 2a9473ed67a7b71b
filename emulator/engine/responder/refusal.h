// SPDX-License-Identifier: BSD-2-Clause
//
// Explains in the log why a responder does not carry out a request: key, address, length, what the region
// allows, or the two numbers that differ. Both sides read it. The process that executes the request logs it,
// and if the responder belongs to another process, leaves the explanation in that process's segment
// (adapter/refusals.h). Nothing is collected unless one of the two logs it.
//
// Off the data path: called once a request is refused or dropped. Does not wait.
#pragma once

#include "adapter/refusals.h"
#include "engine/objects/request.h"
#include "engine/objects/requester_context.h"
#include "engine/rules/vendor_error.h"
#include "observe/log.h"

namespace verbena {

// What a refusal is about, as far as the request does not say it.
struct RefusedPart {
  uint32_t lkey = 0;     // of the receive request, if that is at fault
  uint64_t address = 0;  // likewise
  uint32_t length = 0;   // of the receive request: bytes that it takes
};

// Of `request` by the responder of `requester.path`, for `error`.
[[gnu::cold]] void explain_refusal(const RequesterContext& requester, const Request& request,
                                   VendorError error, const RefusedPart& part = {});

// Of a message of `length` bytes that a UC responder drops because it has no receive request.
[[gnu::cold]] void explain_lost_message(const RequesterContext& requester, const Request& request);

// Of all requests, because check_path() found `error`: peer_mismatch, peer_not_ready. Others need no
// explanation.
[[gnu::cold]] void explain_unreachable(const RequesterContext& requester, VendorError error);

// ---- for other responders (datagram/delivery.cc) ----

// Of a series the 1st, 2nd, 4th, 8th ... are logged.
constexpr bool is_sparse(uint32_t count) { return (count & (count - 1)) == 0; }

// Does this process log refusals of this kind, or that of the responder?
bool is_explained(const PeerAdapter& responder, RefusalKind kind);

// The process that posted the request.
void name_source(Process& process, const RequestOrigin& origin, RequestRefusal* refusal);

// Logs the refusal here, and lets the responder's process log it, unless its `count` is not sparse.
void explain(Process& process, PeerAdapter& responder, const RequestRefusal& refusal);

// Writes the refusals that peers have left in this process's segment to its log. Service thread.
void log_refusals(Process& process);

// "QP 0x000012: ...", as the log has it. `of_process`: the responder's process, if it is another one; or 0.
void describe_refusal(const RequestRefusal& refusal, int32_t of_process, char* text, size_t size);

}  // namespace verbena
