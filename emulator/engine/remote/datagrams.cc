// SPDX-License-Identifier: BSD-2-Clause
//
// Datagrams to and from other nodes. Who has a queue pair number there is asked for once; what is sent before
// the answer waits for it, a moment and within bounds, since nobody sends it again.
#include <algorithm>
#include <cstring>

#include "adapter/clock.h"
#include "engine/datagram/multicast.h"
#include "engine/objects/process.h"
#include "engine/objects/qp.h"
#include "engine/remote/remote.h"
#include "engine/remote/remote_datagram.h"
#include "no_cancellation.h"

namespace verbena {
namespace {

using wire::DatagramHead;
using wire::FrameKind;

constexpr int64_t kPatience = 2'000'000'000;
constexpr int64_t kAskAgain = 20'000'000;
constexpr size_t kMostWaitingBytes = 1024 * 1024;
// For one destination: more waits in the send queue, but not for longer than this; nobody may be there.
constexpr size_t kMostWaitingForOne = 128 * 1024;
constexpr int64_t kSearched = 1'000'000'000;
constexpr size_t kMostKnown = 4096;
// A message that finds no receive request is dropped, as on any wire. But a receiver that has taken so many
// in a row posts again soon: the stream waits for it so long, and if it has had no processor since, a while
// longer. Then what comes is dropped until it takes some again. Where connected queue pairs use the stream,
// too, it does not wait longer.
constexpr uint32_t kReads = 16;
constexpr int64_t kHeld = 5'000'000;
constexpr int64_t kHeldUnscheduled = 500'000'000;
constexpr uint32_t kChances = 16;

// It is lost, as on any wire; here its queue pair has a number of those.
void count_lost(Process& process, const std::byte* frame) {
  DatagramHead head;
  std::memcpy(&head, frame, sizeof head);
  QpnEntry found;
  if (!process.directory().find_qpn(head.source_qpn, &found) || found.slot != process.membership().slot())
    return;
  if (SharedQp* const qp = process.view().qp(found.qp_index); qp != nullptr && qp->qpn == head.source_qpn)
    qp->lost.fetch_add(1, std::memory_order_relaxed);
}

void append_datagram(RemotePeer& peer, const std::byte* frame, size_t size) {
  std::byte* const at = append_request(peer, size);
  if (at == nullptr) return count_lost(peer.process, frame);  // the way is full
  std::memcpy(at, frame, size);
}

}  // namespace

void Remote::send_datagram(const DatagramTo& to, const DatagramHead& head, const uint8_t* bytes,
                           uint32_t size) {
  std::byte frame[sizeof(DatagramHead) + wire::kMaxDatagram];
  DatagramHead whole = head;
  whole.kind = FrameKind::kDatagram;
  whole.length = static_cast<uint32_t>(sizeof head) + size;
  whole.target_qpn = to.to_group ? kMulticastQpn : to.qpn;
  if (size > wire::kMaxDatagram) return;
  const NoCancellation guard;  // a connection that breaks is closed
  std::memcpy(frame, &whole, sizeof whole);
  std::memcpy(frame + sizeof whole, bytes, size);
  std::shared_ptr<RemotePeer> peer;
  {
    std::lock_guard lock(known_mutex_);
    const auto known = known_.find({to.address, to.qpn});
    if (known != known_.end()) peer = known->second.lock();
    // Order: not before those that wait.
    const bool before = std::any_of(
        waiting_datagrams_.begin(), waiting_datagrams_.end(),
        [&](const auto& waiting) { return waiting.to.address == to.address && waiting.to.qpn == to.qpn; });
    if (before || !peer || !peer->connected.load(std::memory_order_acquire)) {
      if (waiting_bytes_ + whole.length > kMostWaitingBytes) return count_lost(process_, frame);
      waiting_bytes_ += whole.length;
      waiting_datagrams_.push_back({to, now_ns() + kPatience, 0, {frame, frame + whole.length}});
      datagrams_wait_.store(true, std::memory_order_release);
      peer = nullptr;
    }
  }
  if (!peer) {
    process_.membership().kick();
    return;
  }
  std::lock_guard out(peer->out_mutex);
  append_datagram(*peer, frame, whole.length);
  flush(*peer);
}

// Under known_mutex_: do as many wait for the destination as may?
bool Remote::is_searched(const wire::NetAddress& to, uint32_t qpn) const {
  size_t bytes = 0;
  int64_t until = kEndOfTime;
  for (const WaitingDatagram& waiting : waiting_datagrams_)
    if (waiting.to.address == to && waiting.to.qpn == qpn) {
      bytes += waiting.frame.size();
      until = std::min(until, waiting.until);
    }
  if (bytes + sizeof(DatagramHead) + wire::kMaxDatagram <= kMostWaitingForOne) return false;
  return now_ns() < until - kPatience + kSearched;
}

bool Remote::is_full(const wire::NetAddress& to, uint32_t qpn) {
  std::shared_ptr<RemotePeer> peer;
  {
    std::lock_guard lock(known_mutex_);
    if (!waiting_datagrams_.empty() && is_searched(to, qpn)) return true;
    if (const auto known = known_.find({to, qpn}); known != known_.end()) peer = known->second.lock();
  }
  if (!peer || !peer->connected.load(std::memory_order_acquire)) return false;
  std::lock_guard out(peer->out_mutex);
  const auto has_room = [&] {
    return peer->out.room() >= sizeof(DatagramHead) + wire::kMaxDatagram + kAnswersRoom;
  };
  if (!has_room()) flush(*peer);
  return !has_room();
}

void Remote::know(const wire::NetAddress& address, uint32_t qpn, const std::shared_ptr<RemotePeer>& peer) {
  std::lock_guard lock(known_mutex_);
  if (known_.size() >= kMostKnown) known_.clear();
  known_[{address, qpn}] = peer;
}

// There is a connection now by which can be asked who has the numbers there.
void Remote::ask_now(const wire::NetAddress& address) {
  std::lock_guard lock(known_mutex_);
  for (WaitingDatagram& waiting : waiting_datagrams_)
    if (waiting.to.address == address) waiting.ask_again_at = 0;
}

// Nobody there has the number: what waits for it does not keep the others from being asked for.
void Remote::drop_waiting_datagrams(const wire::NetAddress& to, uint32_t qpn) {
  std::lock_guard lock(known_mutex_);
  std::erase_if(waiting_datagrams_, [&](const WaitingDatagram& waiting) {
    if (waiting.to.address != to || waiting.to.qpn != qpn) return false;
    count_lost(process_, waiting.frame.data());
    waiting_bytes_ -= waiting.frame.size();
    return true;
  });
}

// In the driver's turn. Does somebody here look for the number?
bool Remote::is_wanted(const wire::NetAddress& at, uint32_t qpn) {
  for (const auto& [own, route] : routes_)
    if (!route.peer && route.path->qpn == qpn && route.path->to == at) return true;
  std::lock_guard lock(known_mutex_);
  if (const auto known = known_.find({at, qpn}); known != known_.end())
    if (const auto peer = known->second.lock(); peer && peer->connected.load(std::memory_order_relaxed))
      return false;
  return std::any_of(
      waiting_datagrams_.begin(), waiting_datagrams_.end(),
      [&](const WaitingDatagram& waiting) { return waiting.to.address == at && waiting.to.qpn == qpn; });
}

// In the driver's turn. True: some still wait.
bool Remote::send_waiting_datagrams(int64_t now) {
  if (!datagrams_wait_.load(std::memory_order_acquire)) return false;
  std::vector<DatagramTo> wanted;
  std::vector<const RemotePeer*> full;  // a shorter one that found room there would be before its time
  {
    std::lock_guard lock(known_mutex_);
    std::erase_if(waiting_datagrams_, [&](WaitingDatagram& waiting) {
      const auto known = known_.find({waiting.to.address, waiting.to.qpn});
      const std::shared_ptr<RemotePeer> peer = known != known_.end() ? known->second.lock() : nullptr;
      const bool sent = peer && peer->connected.load(std::memory_order_relaxed);
      if (sent) {
        const bool behind = std::find(full.begin(), full.end(), peer.get()) != full.end();
        if (behind && now < waiting.until) return false;
        std::lock_guard out(peer->out_mutex);
        if (peer->out.room() < waiting.frame.size() + kAnswersRoom && now < waiting.until) {
          full.push_back(peer.get());
          return false;
        }
        append_datagram(*peer, waiting.frame.data(), waiting.frame.size());
        flush(*peer);
      } else if (now < waiting.until) {
        if (now < waiting.ask_again_at) return false;
        waiting.ask_again_at = now + kAskAgain;
        const bool is_asked = std::any_of(wanted.begin(), wanted.end(), [&](const DatagramTo& to) {
          return to.address == waiting.to.address && to.qpn == waiting.to.qpn;
        });
        if (!is_asked) wanted.push_back(waiting.to);
        return false;
      } else {
        count_lost(process_, waiting.frame.data());
      }
      waiting_bytes_ -= waiting.frame.size();
      return true;
    });
  }
  for (const DatagramTo& to : wanted) {
    if (to.address == kThisNode)
      request_connection_within(wire::Target::queue_pair(to.qpn));
    else if (const std::shared_ptr<RemotePeer> near = connected_to(to.address))
      ask(*near, to.qpn);
    else
      request_connection(to.address, to.from, wire::Target::queue_pair(to.qpn), to.qpn, nullptr);
  }
  std::lock_guard lock(known_mutex_);
  datagrams_wait_.store(!waiting_datagrams_.empty(), std::memory_order_relaxed);
  return !waiting_datagrams_.empty();
}

bool Remote::may_be_held(RemotePeer& peer, uint32_t qpn) {
  const auto taken = peer.datagrams_taken.find(qpn);
  if (taken == peer.datagrams_taken.end() || taken->second < kReads) return false;
  if (peer.held_since == 0) return true;
  const int64_t held = now_ns() - peer.held_since;
  if (held < kHeld) return true;
  return held < kHeldUnscheduled && peer.held_polls < kChances && peer.remote_requesters.empty() &&
         std::none_of(routes_.begin(), routes_.end(),
                      [&](const auto& route) { return route.second.peer.get() == &peer; });
}

Remote::Next Remote::take_datagram(RemotePeer& peer, const wire::Frame& frame) {
  if (peer.in.size() < frame.head_size + frame.payload) return Next::kMore;
  const DatagramHead& head = frame.head.datagram;
  if (!peer.datagram_source) peer.datagram_source = make_remote_sender(process_);
  // Where an answer goes: who sends need not be asked for, and may answer and end before he could be.
  if (uint32_t& last = peer.datagram_source_qpn; last != head.source_qpn) {
    last = head.source_qpn;
    know(peer.address, head.source_qpn, peer_of(peer.id));
  }
  const bool may_wait = may_be_held(peer, head.target_qpn);
  switch (receive_remote_datagram(*peer.datagram_source,
                                   remote_datagram(head, peer.in.data() + frame.head_size, frame.payload),
                                   may_wait)) {
    case Delivery::kTaken:
      if (peer.datagrams_taken.size() >= kMostKnown) peer.datagrams_taken.clear();
      ++peer.datagrams_taken[head.target_qpn];
      break;
    case Delivery::kDropped:
      if (!may_wait) peer.datagrams_taken.erase(head.target_qpn);
      break;
    case Delivery::kNoReceive:
      if (peer.held_since == 0) {
        peer.held_since = now_ns();
        peer.held_polls = 0;
      }
      return Next::kStop;
  }
  peer.held_since = 0;
  peer.in.consume(frame.head_size + frame.payload);
  return Next::kOn;
}

}  // namespace verbena
