// SPDX-License-Identifier: BSD-2-Clause
#include "engine/responder/response_event.h"

#include <algorithm>

#include "engine/responder/payload_stream.h"
#include "engine/rules/psn.h"
#include "engine/rules/reply.h"
#include "engine/rules/timers.h"

namespace verbena {
namespace {

constexpr uint32_t kAtOnce = 1 << 20;  // bytes of a READ

Reply reply_of(const Response& response, bool is_acknowledged) {
  switch (response.answer) {
    case Answer::kAck:
      return Reply::kAcknowledged;
    case Answer::kPartial:
      return Reply::kMore;
    case Answer::kRnr:
      return is_acknowledged ? Reply::kRnr : Reply::kSilence;
    case Answer::kSilence:
    case Answer::kGone:
      return Reply::kSilence;
    case Answer::kLocal:
    case Answer::kBusy:
      return Reply::kNothing;
    case Answer::kNak:
      break;
  }
  if (!is_acknowledged) return Reply::kSilence;
  const Reply reply = reply_of(response.error);
  return reply == Reply::kNothing || reply == Reply::kAcknowledged ? Reply::kInvalidRequest : reply;
}

// Packets of RoCE v2 are told where they are sent and received: their requesters have no route.
bool has_route(const RequesterContext& requester) { return requester.route.hop_limit != 0; }

bool read_there(RequesterContext& requester, const iovec* from, size_t froms, uint64_t size) {
  requester.kept_bytes.resize(size);
  const iovec to{requester.kept_bytes.data(), size};
  const bool done =
      size == 0 || requester.path.memory->read(requester.process->directory(), &to, 1, from, froms) == 0;
  if (!done) requester.kept_bytes.clear();
  return done;
}

// A READ by another node, in pieces.
void tell_fetched(Observer& observer, RequesterContext& requester, ResponseEvent event) {
  for (uint32_t at = 0; at < event.length; at += kAtOnce) {
    const uint32_t size = std::min(kAtOnce, event.length - at);
    const iovec from{static_cast<char*>(requester.fetched.iov_base) + at, size};
    read_there(requester, &from, 1, size);
    const iovec range{requester.kept_bytes.data(), requester.kept_bytes.size()};
    event.offset = event.ranges_at = at;
    event.end = at + size;
    event.reply = event.end == event.length ? Reply::kAcknowledged : Reply::kMore;
    event.ranges = &range;
    event.range_count = range.iov_len != 0 ? 1 : 0;
    observer.on_response(event);
  }
}

}  // namespace

void tell_response(Observer& observer, RequesterContext& requester, const Request& request,
                   const Response& response, uint32_t before, const LocalBytes& local) {
  const SharedQp& there = *requester.path.qp;
  ResponseEvent event{.source_qpn = requester.qpn,
                      .target_qpn = there.qpn,
                      .psn = requester.psn,
                      .length = request.length,
                      .opcode = static_cast<uint8_t>(request.opcode),
                      .verdict = static_cast<uint8_t>(response.answer),
                      .vendor_err = static_cast<uint8_t>(response.error)};
  if (has_route(requester)) event.transport = static_cast<uint8_t>(requester.type);
  event.reply = reply_of(response, is_acknowledged(requester.type));
  event.solicited = (request.flags & IBV_SEND_SOLICITED) != 0;
  event.rnr_timer = there.min_rnr_timer;
  event.rnr_wait_ns = rnr_timer_ns(there.min_rnr_timer);
  event.pkey = QpPath::unpack(there.path.load(std::memory_order_relaxed)).pkey;
  event.mtu = requester.mtu;
  event.offset = before;
  event.end = response.answer == Answer::kAck ? request.length : request.done;
  event.immediate = request.immediate;
  event.rkey = request.rkey;
  event.srqn = request.remote_srqn;
  event.msn = static_cast<uint32_t>(there.requests_in.load(std::memory_order_relaxed)) & kPsnMask;
  event.remote_address = request.remote_address;
  event.compare_add = request.compare_add;
  event.swap = request.swap;
  event.route = &requester.route;
  const iovec fetched = std::exchange(requester.fetched, iovec{});
  if (fetched.iov_len != 0 && response.answer == Answer::kAck) {
    requester.fetched = fetched;
    tell_fetched(observer, requester, event);
    requester.fetched = {};
    return requester.kept_bytes.clear();
  }
  const iovec kept{requester.kept_bytes.data(), requester.kept_bytes.size()};
  if (requester.payload != nullptr) {
    event.ranges = &kept;
    event.range_count = kept.iov_len != 0 ? 1 : 0;
    event.ranges_at = before;
  } else {
    event.ranges = local.ranges;
    event.range_count = local.count;
  }
  observer.on_response(event);
  requester.kept_bytes.clear();
}

void keep_placed(RequesterContext& requester, uint32_t begin, uint32_t end, const iovec* remote,
                 size_t remotes) {
  if (!has_route(requester) || begin >= end) return;
  iovec from[PeerAdapter::kMaxRanges];
  const size_t froms = cut_ranges(remote, remotes, begin, end - begin, from, PeerAdapter::kMaxRanges);
  read_there(requester, from, froms, end - begin);
}

void keep_fetched(RequesterContext& requester, const iovec& remote) {
  if (has_route(requester)) requester.fetched = remote;
}

}  // namespace verbena
