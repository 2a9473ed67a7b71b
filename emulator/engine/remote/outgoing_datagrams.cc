// SPDX-License-Identifier: BSD-2-Clause
#include "engine/remote/outgoing_datagrams.h"

#include <algorithm>
#include <cstring>

#include "adapter/clock.h"
#include "engine/datagram/multicast.h"
#include "engine/objects/process.h"
#include "engine/objects/qp.h"
#include "engine/remote/peer.h"
#include "no_cancellation.h"

namespace verbena {
namespace {

using wire::DatagramHead;
using wire::FrameKind;

constexpr int64_t kPatience = 2'000'000'000;
constexpr int64_t kLookAgain = 20'000'000;
constexpr size_t kMostWaitingBytes = 1024 * 1024;
// The share of one destination. More datagrams wait in the send queue, but not longer than kSearched: nobody
// may be there.
constexpr size_t kMostWaitingForOne = 128 * 1024;
constexpr int64_t kSearched = 1'000'000'000;

// The datagram is lost, as on any wire. Its queue pair counts it.
void count_lost(Process& process, const std::byte* frame) {
  DatagramHead head;
  std::memcpy(&head, frame, sizeof head);
  QpnEntry found;
  if (!process.directory().find_qpn(head.source_qpn, &found) || found.slot != process.membership().slot())
    return;
  if (SharedQp* const qp = process.view().qp(found.qp_index); qp != nullptr && qp->qpn == head.source_qpn)
    qp->lost.fetch_add(1, std::memory_order_relaxed);
}

// Under out_mutex.
void append_datagram(RemotePeer& peer, const std::byte* frame, size_t size) {
  std::byte* const at = append_request(peer, size);
  if (at == nullptr) return count_lost(peer.process, frame);  // the stream is full
  std::memcpy(at, frame, size);
}

bool is_same(const DatagramTo& to, const wire::NetAddress& address, uint32_t qpn) {
  return to.qpn == qpn && to.address == address;
}

}  // namespace

void OutgoingDatagrams::send(const DatagramTo& to, const DatagramHead& head, const uint8_t* bytes,
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
    std::lock_guard lock(mutex_);
    // Datagrams of one destination stay in order: none overtakes those that wait.
    const bool others_wait =
        std::any_of(waiting_.begin(), waiting_.end(),
                    [&](const WaitingDatagram& waiting) { return is_same(waiting.to, to.address, to.qpn); });
    if (!others_wait) peer = locations_.connected(to.address, to.qpn);
    if (!peer) {
      if (waiting_bytes_ + whole.length > kMostWaitingBytes) return count_lost(process_, frame);
      waiting_bytes_ += whole.length;
      waiting_.push_back({to, now_ns() + kPatience, 0, {frame, frame + whole.length}});
      waits_.store(true, std::memory_order_release);
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

// Under mutex_. Do as many wait for the destination as may?
bool OutgoingDatagrams::is_over_share(const wire::NetAddress& to, uint32_t qpn) const {
  size_t bytes = 0;
  int64_t until = kEndOfTime;
  for (const WaitingDatagram& waiting : waiting_)
    if (is_same(waiting.to, to, qpn)) {
      bytes += waiting.frame.size();
      until = std::min(until, waiting.until);
    }
  if (bytes + sizeof(DatagramHead) + wire::kMaxDatagram <= kMostWaitingForOne) return false;
  return now_ns() < until - kPatience + kSearched;
}

bool OutgoingDatagrams::is_full(const wire::NetAddress& to, uint32_t qpn) {
  {
    std::lock_guard lock(mutex_);
    if (!waiting_.empty() && is_over_share(to, qpn)) return true;
  }
  const std::shared_ptr<RemotePeer> peer = locations_.connected(to, qpn);
  if (!peer) return false;
  std::lock_guard out(peer->out_mutex);
  const auto has_room = [&] {
    return peer->out.room() >= sizeof(DatagramHead) + wire::kMaxDatagram + kAnswersRoom;
  };
  if (!has_room()) flush(*peer);
  return !has_room();
}

bool OutgoingDatagrams::waits_for(const wire::NetAddress& to, uint32_t qpn) {
  std::lock_guard lock(mutex_);
  return std::any_of(waiting_.begin(), waiting_.end(),
                     [&](const WaitingDatagram& waiting) { return is_same(waiting.to, to, qpn); });
}

void OutgoingDatagrams::look_again_for(const wire::NetAddress& node) {
  std::lock_guard lock(mutex_);
  for (WaitingDatagram& waiting : waiting_)
    if (waiting.to.address == node) waiting.look_again_at = 0;
}

std::map<uint32_t, std::vector<std::byte>> OutgoingDatagrams::take_within_node() {
  std::map<uint32_t, std::vector<std::byte>> taken;
  std::lock_guard lock(mutex_);
  std::erase_if(waiting_, [&](const WaitingDatagram& waiting) {
    if (waiting.to.address != kThisNode) return false;
    std::vector<std::byte>& frames = taken[waiting.to.qpn];
    frames.insert(frames.end(), waiting.frame.begin(), waiting.frame.end());
    waiting_bytes_ -= waiting.frame.size();
    return true;
  });
  return taken;
}

void OutgoingDatagrams::drop(const wire::NetAddress& to, uint32_t qpn) {
  std::lock_guard lock(mutex_);
  std::erase_if(waiting_, [&](const WaitingDatagram& waiting) {
    if (!is_same(waiting.to, to, qpn)) return false;
    count_lost(process_, waiting.frame.data());
    waiting_bytes_ -= waiting.frame.size();
    return true;
  });
}

// Under mutex_. `full`: connections that had no room for an earlier datagram. A shorter one must not overtake
// it.
OutgoingDatagrams::Fate OutgoingDatagrams::send_or_wait(WaitingDatagram& datagram, int64_t now,
                                                        std::vector<DatagramTo>& wanted,
                                                        std::vector<const RemotePeer*>& full) {
  const bool may_wait = now < datagram.until;
  if (const auto peer = locations_.connected(datagram.to.address, datagram.to.qpn)) {
    if (may_wait && std::find(full.begin(), full.end(), peer.get()) != full.end()) return Fate::kWaits;
    std::lock_guard out(peer->out_mutex);
    if (may_wait && peer->out.room() < datagram.frame.size() + kAnswersRoom) {
      full.push_back(peer.get());
      return Fate::kWaits;
    }
    append_datagram(*peer, datagram.frame.data(), datagram.frame.size());
    flush(*peer);
    return Fate::kLeaves;
  }
  if (!may_wait) {
    count_lost(process_, datagram.frame.data());
    return Fate::kLeaves;
  }
  if (now < datagram.look_again_at) return Fate::kWaits;
  datagram.look_again_at = now + kLookAgain;
  const bool listed = std::any_of(wanted.begin(), wanted.end(), [&](const DatagramTo& to) {
    return is_same(to, datagram.to.address, datagram.to.qpn);
  });
  if (!listed) wanted.push_back(datagram.to);
  return Fate::kWaits;
}

std::vector<DatagramTo> OutgoingDatagrams::send_waiting(int64_t now) {
  std::vector<DatagramTo> wanted;
  if (!has_waiting()) return wanted;
  std::vector<const RemotePeer*> full;
  std::lock_guard lock(mutex_);
  std::erase_if(waiting_, [&](WaitingDatagram& datagram) {
    if (send_or_wait(datagram, now, wanted, full) == Fate::kWaits) return false;
    waiting_bytes_ -= datagram.frame.size();
    return true;
  });
  waits_.store(!waiting_.empty(), std::memory_order_relaxed);
  return wanted;
}

}  // namespace verbena
