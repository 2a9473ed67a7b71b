// SPDX-License-Identifier: BSD-2-Clause
#include "engine/roce_transport/management.h"

#include <algorithm>

#include "engine/objects/process.h"
#include "engine/packets/datagram_packet.h"
#include "engine/roce_transport/packet_sender.h"
#include "roce/packet.h"

namespace verbena {
namespace {

MadRules mad_rules{};

}  // namespace

void Management::set_rules(const MadRules& rules) { mad_rules = rules; }

void Management::receive_by(void (*arrived)(void*, const Mad&), void* context) {
  std::lock_guard lock(mutex_);
  arrived_ = arrived;
  context_ = context;
}

void Management::send(PacketSender& sender, const Mad& mad) {
  packets::Datagram datagram;
  datagram.destination_qpn = datagram.source_qpn = roce::kManagementQpn;
  datagram.qkey = roce::kManagementQkey;
  datagram.psn = psn_.fetch_add(1, std::memory_order_relaxed) & 0xffffff;
  datagram.payload = mad.bytes;
  sender.send(mad.to, {}, packets::packet_of(datagram));
}

bool Management::parse(std::span<const uint8_t> datagram, Mad* out) {
  roce::Packet packet;
  packets::Datagram found;
  if (roce::parse(datagram, &packet) != roce::Parsed::kPacket ||
      packets::accept(packet, roce::kDefaultPkey, roce::kManagementQkey, roce::kMadSize, &found) !=
          packets::Refused::kNot ||
      found.destination_qpn != roce::kManagementQpn || found.payload.size() != roce::kMadSize)
    return false;
  std::copy(found.payload.begin(), found.payload.end(), out->bytes.begin());
  return true;
}

uint32_t Management::receiver_of(const Mad& mad) const {
  if (mad_rules.find_receiver == nullptr) return MadRules::kNobody;
  const NodeMembership& membership = process_.membership();
  return mad_rules.find_receiver(membership.directory(), membership.node(), mad);
}

bool Management::refuse(Mad* mad) { return mad_rules.refuse != nullptr && mad_rules.refuse(mad); }

void Management::take(const Mad& mad) {
  std::lock_guard lock(mutex_);
  if (arrived_ != nullptr) arrived_(context_, mad);
}

}  // namespace verbena
