// SPDX-License-Identifier: BSD-2-Clause
#include "engine/remote/datagram_receiver.h"

#include "adapter/clock.h"
#include "engine/remote/remote_datagram.h"
#include "engine/remote/remote_requester.h"

namespace verbena {
namespace {

constexpr uint32_t kReads = 16;
constexpr int64_t kHeld = 5'000'000;
constexpr int64_t kHeldUnscheduled = 500'000'000;
constexpr uint32_t kChances = 16;
constexpr size_t kMostCounted = 4096;  // queue pairs

}  // namespace

bool DatagramReceiver::may_wait(const RemotePeer& peer, uint32_t qpn) const {
  const auto taken = peer.datagrams_taken.find(qpn);
  if (taken == peer.datagrams_taken.end() || taken->second < kReads) return false;
  if (peer.held_since == 0) return true;
  const int64_t held = now_ns() - peer.held_since;
  if (held < kHeld) return true;
  return held < kHeldUnscheduled && peer.held_polls < kChances && peer.remote_requesters.empty() &&
         !connections_.has_routes_to(peer);
}

FrameResult DatagramReceiver::take(RemotePeer& peer, const wire::Frame& frame) {
  if (peer.in.size() < frame.head_size + frame.payload) return FrameResult::kMore;
  const wire::DatagramHead& head = frame.head.datagram;
  if (!peer.datagram_source) {
    peer.datagram_source = make_remote_sender(process_);
    peer.datagram_source->origin = {&peer.address, peer.id.slot};
  }
  // Replies go there. The sender need not be asked for; it may reply and end before the query reaches it.
  if (uint32_t& last = peer.datagram_source_qpn; last != head.source_qpn) {
    last = head.source_qpn;
    connections_.note_source(peer, head.source_qpn);
  }
  const bool waits = may_wait(peer, head.target_qpn);
  switch (receive_remote_datagram(
      *peer.datagram_source, remote_datagram(head, peer.in.data() + frame.head_size, frame.payload), waits)) {
    case Delivery::kTaken:
      if (peer.datagrams_taken.size() >= kMostCounted) peer.datagrams_taken.clear();
      ++peer.datagrams_taken[head.target_qpn];
      break;
    case Delivery::kDropped:
      if (!waits) peer.datagrams_taken.erase(head.target_qpn);
      break;
    case Delivery::kNoReceive:
      if (peer.held_since == 0) {
        peer.held_since = now_ns();
        peer.held_polls = 0;
      }
      return FrameResult::kStalled;
  }
  peer.held_since = 0;
  peer.in.consume(frame.head_size + frame.payload);
  return FrameResult::kDone;
}

void receive_passed_datagrams(Process& process, const wire::ProcessId& from,
                              std::span<const std::byte> frames) {
  const std::unique_ptr<DatagramSender> sender = make_remote_sender(process);
  sender->origin = {&kThisNode, from.slot};
  while (!frames.empty()) {
    wire::Frame frame;
    if (wire::decode(frames.data(), frames.size(), &frame) != wire::Decoded::kFrame ||
        frame.head.datagram.kind != wire::FrameKind::kDatagram ||
        frames.size() < frame.head_size + frame.payload)
      return;
    receive_remote_datagram(
        *sender, remote_datagram(frame.head.datagram, frames.data() + frame.head_size, frame.payload));
    frames = frames.subspan(frame.head_size + frame.payload);
  }
}

}  // namespace verbena
