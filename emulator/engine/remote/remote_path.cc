// SPDX-License-Identifier: BSD-2-Clause
#include "engine/remote/remote_path.h"

#include <mutex>

#include "adapter/clock.h"
#include "adapter/prefetch.h"
#include "engine/objects/flight.h"
#include "engine/objects/qp.h"
#include "engine/objects/send_request.h"
#include "engine/remote/peer.h"
#include "engine/remote/remote_requests.h"
#include "engine/requester/requester.h"
#include "engine/responder/peer_path.h"
#include "engine/rules/timers.h"

namespace verbena {
namespace {

// An adapter answers whatever the processors of its host do; here a process has to be scheduled. It has this
// long beyond what timeout and retry_cnt say, as long as the path to it is sound.
constexpr int64_t kUnscheduled = 5'000'000'000;
// A message of UC waits this long for a connection. Then it is lost.
constexpr uint64_t kUnacknowledgedPatience = 2'000'000'000;

bool is_connected(const RemotePath& path) {
  return path.peer && path.peer->connected.load(std::memory_order_acquire);
}

}  // namespace

RemotePath* path_of(const Qp& qp) { return static_cast<RemotePath*>(qp.frame_path.get()); }

VendorError RemotePath::find_path(Qp& qp) {
  if (!ports_up(qp.requester)) return VendorError::port_down;
  if (is_connected(*this)) return VendorError::none;
  owner->seek(qp.shared->qpn);
  return peer && peer->gone ? VendorError::peer_gone : VendorError::no_path;
}

SendResult RemotePath::send(Qp& qp, const SendOperation& operation, SendRequest& request) {
  if (const VendorError error = find_path(qp); error != VendorError::none) {
    const bool is_lost = error != VendorError::port_down && !is_acknowledged(qp.type) &&
                         qp.waiting == Waiting::kTransport && now_ns() >= qp.give_up_at;
    if (!is_lost) return {SendOutcome::kUnreachable, error};
    qp.shared->lost.fetch_add(1, std::memory_order_relaxed);
    complete_request(qp, request);
    qp.waiting = Waiting::kTransport;  // the requests behind it have waited as long: they are lost at once
    watch(qp);                         // the service thread goes on looking for a path
    return {SendOutcome::kCompleted};
  }
  const SendResult result = send_request(qp, *this, operation, request);
  if (result.outcome != SendOutcome::kSent || is_acknowledged(qp.type)) return result;
  complete_request(qp, request);
  return {SendOutcome::kCompleted};
}

uint32_t RemotePath::chunk_size() const { return wire::kChunkBytes; }

int RemotePath::was_replaced(Qp& qp) {
  if (!is_connected(*this) || epoch == peer->epoch.load(std::memory_order_acquire)) return kSamePath;
  epoch = peer->epoch.load(std::memory_order_acquire);
  if (qp.flight.sent == qp.sq_posted || is_acknowledged(qp.type)) return 0;
  // A message of UC that was sent as a whole may have arrived.
  const SendRequest& current = qp.sq[qp.flight.sent & (qp.sq.size() - 1)];
  return current.done != 0 && current.done == current.length ? 1 : 0;
}

uint64_t RemotePath::patience_ns(const Qp& qp) const {
  return is_acknowledged(qp.type) ? transport_failure_ns(qp.attr.timeout, qp.attr.retry_cnt)
                                  : kUnacknowledgedPatience;
}

int64_t RemotePath::grace_ns(Qp& qp, int64_t now) {
  if (now >= qp.give_up_at + kUnscheduled) return 0;
  if (qp.wait_reason == VendorError::peer_silent && is_connected(*this)) {
    std::lock_guard out(peer->out_mutex);
    return is_path_sound(*peer) ? kUnscheduled : 0;
  }
  // An adapter would not have to be connected to first.
  const bool is_looked_for =
      qp.wait_reason == VendorError::no_path && is_called.load(std::memory_order_relaxed);
  return is_looked_for ? kUnscheduled : 0;
}

void RemotePath::watch(Qp& qp) {
  if (is_watched) return;
  is_watched = true;
  owner->watch(qp);
}

void RemotePath::expect_request(const Qp& qp, uint64_t number) const {
  prefetch(this, this + 1);
  prefetch(&qp.send_lock, &qp.sq_inline + 1);
  prefetch(&qp.requester, &qp.requester.path);
  prefetch(&qp.flight);
  prefetch(&qp.pacing);
  prefetch(&qp.attr.timeout);
  prefetch(&qp.shared->responder_state);
  prefetch(&qp.shared->requests_out);
  if (qp.sq.empty()) return;
  const uint64_t place = number & (qp.sq.size() - 1);
  prefetch(qp.sq.data() + place, qp.sq.data() + place + 1);
  prefetch(qp.sq_sges.data() + place * qp.cap.max_send_sge);
  prefetch(qp.sq_inline.data() + place * qp.sq_inline_stride);
}

}  // namespace verbena
