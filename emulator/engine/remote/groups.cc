// SPDX-License-Identifier: BSD-2-Clause
#include "engine/remote/groups.h"

#include <cstring>

#include "engine/datagram/multicast.h"
#include "engine/objects/process.h"
#include "engine/remote/remote_datagram.h"
#include "no_cancellation.h"
#include "observe/log.h"

namespace verbena {
namespace {

constexpr int kAtATime = 256;

}  // namespace

RemoteGroups::RemoteGroups(Process& process)
    : process_(process), open_(multicast_channel_.open(process.membership()) == 0) {}

void RemoteGroups::listen() {
  if (!open_ || multicast_channel_.listens()) return;
  if (const int error = multicast_channel_.listen(); error != 0)
    VERBENA_WARN(multicast_deaf, "ibv_attach_mcast: messages of other nodes do not arrive: errno %d", error);
}

void RemoteGroups::send(const wire::NetAddress& from, const wire::DatagramHead& head, const uint8_t* bytes,
                        uint32_t size) {
  if (!open_) return;
  const NoCancellation guard;
  uint8_t message[sizeof head + wire::kMaxDatagram];
  static_assert(sizeof message <= wire::kMaxMulticastMessage);
  if (size > wire::kMaxDatagram) return;
  wire::DatagramHead whole = head;
  whole.kind = wire::FrameKind::kDatagram;
  whole.length = static_cast<uint32_t>(sizeof whole) + size;
  whole.target_qpn = kMulticastQpn;
  std::memcpy(message, &whole, sizeof whole);
  std::memcpy(message + sizeof whole, bytes, size);
  multicast_channel_.send(from, {message, whole.length});
}

bool RemoteGroups::serve() {
  if (!multicast_channel_.listens()) return false;
  if (!sender_) sender_ = make_remote_sender(process_);
  std::array<uint8_t, wire::kMaxMulticastMessage> message;
  for (int i = 0; i < kAtATime; ++i) {
    const size_t size = multicast_channel_.receive(&message);
    if (size == 0) return false;
    wire::Frame frame;
    if (wire::decode(reinterpret_cast<const std::byte*>(message.data()), size, &frame) !=
            wire::Decoded::kFrame ||
        frame.head.datagram.kind != wire::FrameKind::kDatagram || frame.head_size + frame.payload != size ||
        frame.head.datagram.target_qpn != kMulticastQpn)
      continue;
    receive_remote_datagram(
        *sender_, remote_datagram(frame.head.datagram, message.data() + frame.head_size, frame.payload));
  }
  return true;
}

}  // namespace verbena
