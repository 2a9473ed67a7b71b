// SPDX-License-Identifier: BSD-2-Clause
#include "engine/remote/groups.h"

#include <cstring>

#include "engine/datagram/datagram.h"
#include "engine/objects.h"
#include "engine/remote/remote_path.h"
#include "observe/log.h"

namespace verbena {
namespace {

constexpr uint32_t kMulticastQpn = 0xffffff;
constexpr int kAtATime = 256;

}  // namespace

// Towards the queue pairs of this process the senders of all groups are one queue pair, of nobody.
struct RemoteGroups::Senders {
  Qp qp;
  SharedQp shared{};
};

RemoteGroups::RemoteGroups(Process& process) : process_(process), open_(crowd_.open(process.home()) == 0) {}
RemoteGroups::~RemoteGroups() = default;

void RemoteGroups::listen() {
  if (!open_ || crowd_.listens()) return;
  if (const int error = crowd_.listen(); error != 0)
    VERBENA_WARN("ibv_attach_mcast: messages of other nodes do not arrive: errno %d", error);
}

void RemoteGroups::send(const wire::NetAddress& from, const wire::DatagramHead& head, const uint8_t* bytes,
                        uint32_t size) {
  if (!open_) return;
  uint8_t message[sizeof head + wire::kMaxDatagram];
  static_assert(sizeof message <= wire::kMaxCrowdMessage);
  if (size > wire::kMaxDatagram) return;
  wire::DatagramHead whole = head;
  whole.kind = wire::FrameKind::kDatagram;
  whole.length = static_cast<uint32_t>(sizeof whole) + size;
  whole.target_qpn = kMulticastQpn;
  std::memcpy(message, &whole, sizeof whole);
  std::memcpy(message + sizeof whole, bytes, size);
  crowd_.send(from, {message, whole.length});
}

bool RemoteGroups::serve() {
  if (!crowd_.listens()) return false;
  if (!senders_) {
    senders_ = std::make_unique<Senders>();
    senders_->qp.process = &process_;
    senders_->qp.shared = &senders_->shared;
    senders_->qp.index = kRemoteIndex;
    senders_->qp.type = IBV_QPT_UD;
    senders_->qp.datagrams = make_datagrams(senders_->qp);
  }
  std::array<uint8_t, wire::kMaxCrowdMessage> message;
  for (int i = 0; i < kAtATime; ++i) {
    const size_t size = crowd_.receive(&message);
    if (size == 0) return false;
    wire::Frame frame;
    if (wire::decode(reinterpret_cast<const std::byte*>(message.data()), size, &frame) !=
            wire::Decoded::kFrame ||
        frame.head.datagram.kind != wire::FrameKind::kDatagram || frame.head_size + frame.payload != size ||
        frame.head.datagram.target_qpn != kMulticastQpn)
      continue;
    const wire::DatagramHead& head = frame.head.datagram;
    ForeignDatagram datagram{};
    datagram.bytes = message.data() + frame.head_size;
    datagram.length = frame.payload;
    datagram.target_qpn = head.target_qpn;
    datagram.source = {head.source_qpn, 0, head.sl, head.path_bits};
    datagram.qkey = head.qkey;
    datagram.immediate = head.immediate;
    datagram.flags = head.flags;
    std::memcpy(datagram.destination.raw, head.destination, sizeof head.destination);
    receive_foreign_datagram(senders_->qp, datagram);
  }
  return true;
}

}  // namespace verbena
