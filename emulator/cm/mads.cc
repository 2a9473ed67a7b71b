// SPDX-License-Identifier: BSD-2-Clause
//
// The connection manager and nodes that are reached by RoCE v2: its messages are MADs of QP 1. There is no
// link to a process of the other node, and none is known: the peer is the node, by its address. Messages may
// be lost; a connection repeats what is not answered (connection.h).
//
// Communication IDs of this node tell which process has them: the slot is in their upper bits.
#include <algorithm>

#include "cm/id.h"
#include "cm/service.h"
#include "engine/roce_transport/management.h"
#include "fabric/node.h"

namespace verbena::cm {
namespace {

using enum Field;

// MADs that wait for the thread of the service. More are lost, and come again.
constexpr size_t kMostMads = 1024;

bool message_of(const Mad& mad, Message* out) {
  return decode_mad(mad.bytes, mad.from.bytes, mad.to.bytes, out);
}

void write_mad(const Message& message, Mad* out) {
  Frame frame;
  encode(message, frame);
  out->from.bytes = message.source;
  out->to.bytes = message.destination;
  std::copy(frame.begin() + kFrameHead, frame.end(), out->bytes.begin());
}

uint32_t slot_of_id(const NodeDirectory& directory, uint64_t id) {
  const auto slot = static_cast<uint32_t>(id) >> kIdSlotShift;
  const bool is_alive =
      slot < kMaxSlots &&
      directory.alive(slot, directory.slot(slot).generation.load(std::memory_order_acquire));
  return is_alive ? slot : MadRules::kNobody;
}

uint32_t find_receiver(const NodeDirectory& directory, const std::string& node, const Mad& mad) {
  Message m;
  if (!message_of(mad, &m)) return MadRules::kNobody;
  uint32_t slot = MadRules::kNobody;
  switch (m.kind) {
    case MessageKind::kReq:
    case MessageKind::kSidrReq:
      return find_listening_slot(directory, node, mad.to, m[kServiceId], &slot) ? slot : MadRules::kNobody;
    case MessageKind::kSidrRep:
      return slot_of_id(directory, m[kLocalId]);
    case MessageKind::kRej:
      // The sender has never learned our ID.
      if (m[kReason] == kRejectTimeout) return MadRules::kEverybody;
      return slot_of_id(directory, m[kRemoteId]);
    default:
      return slot_of_id(directory, m[kRemoteId]);
  }
}

// As ConnectionTable does for messages of no connection.
bool refuse(Mad* mad) {
  Message m, reply;
  if (!message_of(*mad, &m)) return false;
  reply.source = m.destination;
  reply.destination = m.source;
  reply[kTransaction] = m[kTransaction];
  reply[kLocalId] = m[kRemoteId];
  reply[kRemoteId] = m[kLocalId];
  switch (m.kind) {
    case MessageKind::kReq:
      reply.kind = MessageKind::kRej;
      reply[kWhichMessage] = kAnsweredReq;
      reply[kReason] = kRejectInvalidServiceId;
      break;
    case MessageKind::kSidrReq:
      reply.kind = MessageKind::kSidrRep;
      reply[kLocalId] = m[kLocalId];
      reply[kServiceId] = m[kServiceId];
      reply[kStatus] = kSidrUnsupported;
      break;
    case MessageKind::kDreq:
      reply.kind = MessageKind::kDrep;
      break;
    default:
      return false;
  }
  write_mad(reply, mad);
  return true;
}

[[maybe_unused]] const bool registered_rules = (Management::set_rules({find_receiver, refuse}), true);

}  // namespace

Peer peer_at(const Gid& address) {
  Peer peer{};
  uint8_t bytes[16];
  std::copy(address.begin(), address.end(), bytes);
  for (size_t i = 0; i < 4; ++i) peer.slot = peer.slot << 8 | bytes[i];
  for (size_t i = 4; i < 8; ++i) peer.generation = peer.generation << 8 | bytes[i];
  for (size_t i = 8; i < 16; ++i) peer.node = peer.node << 8 | bytes[i];
  return peer;
}

// Any thread.
void Service::mad_arrived(void* self, const Mad& mad) {
  auto& service = *static_cast<Service*>(self);
  {
    std::lock_guard lock(service.mads_mutex_);
    if (service.mads_.size() >= kMostMads) return;
    service.mads_.push_back(mad);
  }
  service.wake();
}

void Service::take_mads() {
  std::deque<Mad> arrived;
  {
    std::lock_guard lock(mads_mutex_);
    arrived.swap(mads_);
  }
  for (const Mad& mad : arrived)
    if (Message message; message_of(mad, &message)) connections_.receive(peer_at(mad.from.bytes), message);
}

// Acknowledgements first: a peer that learns of the end may end what they are awaited for.
void Service::notify_of_exit() {
  if (process_->dead() || roce() == nullptr) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  roce()->flush_at_exit();
  connections_.notify_of_end();
}

void Service::send_mad(const Message& message) {
  Mad mad;
  write_mad(message, &mad);
  roce()->send_mad(mad);
}

}  // namespace verbena::cm
