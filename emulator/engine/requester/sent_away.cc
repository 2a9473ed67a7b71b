// SPDX-License-Identifier: BSD-2-Clause
#include "engine/requester/sent_away.h"

#include <algorithm>

#include "engine/objects/requester_context.h"
#include "engine/objects/send_request.h"
#include "engine/requester/local_bytes.h"
#include "engine/requester/local_requests.h"
#include "engine/rules/psn.h"
#include "fabric/hazards.h"

namespace verbena {
namespace {

// Bytes that an observer is told of at a time.
constexpr uint32_t kToldAtOnce = 1 << 20;

}  // namespace

void tell_sent_away(Observer& observer, Qp& qp, const SendRequest& request, Reply reply, VendorError error,
                    uint8_t rnr_timer) {
  if (is_local(request.opcode)) return;
  const SendOperation& operation = *find_send_operation(request.opcode);
  iovec ranges[PeerAdapter::kMaxRanges];
  const HazardGuard guard(qp.process->hazards(), qp.process->membership().slot());
  size_t count = 0;
  if (find_local_bytes(qp, operation, request, ranges, &count) != VendorError::none) count = 0;
  ResponseEvent event{.source_qpn = qp.shared->qpn,
                      .target_qpn = qp.attr.dest_qp_num,
                      .psn = qp.requester.psn,
                      .length = request.length,
                      .opcode = static_cast<uint8_t>(request.opcode),
                      .verdict = 0,
                      .vendor_err = static_cast<uint8_t>(error)};
  event.transport = static_cast<uint8_t>(qp.type);
  event.reply = reply;
  event.solicited = (request.flags & IBV_SEND_SOLICITED) != 0;
  event.rnr_timer = rnr_timer;
  event.pkey = QpPath::unpack(qp.shared->path.load(std::memory_order_relaxed)).pkey;
  event.mtu = qp.requester.mtu;
  event.immediate = request.immediate;
  event.rkey = request.rkey;
  event.srqn = request.remote_srqn;
  event.msn = static_cast<uint32_t>(qp.shared->requests_out.load(std::memory_order_relaxed) + 1) & kPsnMask;
  event.remote_address = request.remote_address;
  event.compare_add = request.compare_add;
  event.swap = request.swap;
  event.route = &qp.requester.route;
  event.ranges = ranges;
  event.range_count = count;
  event.may_be_gone = true;
  if (reply != Reply::kAcknowledged) return observer.on_response(event);
  do {
    event.end = std::min(request.length, event.offset + std::min(kToldAtOnce, request.length - event.offset));
    event.reply = event.end == request.length ? reply : Reply::kMore;
    observer.on_response(event);
    event.offset = event.end;
  } while (event.offset < request.length);
}

}  // namespace verbena
