// SPDX-License-Identifier: BSD-2-Clause
#include "engine/packets/datagram_packet.h"

#include "roce/opcode.h"

namespace verbena::packets {

roce::Packet packet_of(const Datagram& datagram) noexcept {
  roce::Packet packet;
  packet.bth.opcode =
      roce::opcode_of(roce::TransportKind::kUd, datagram.has_immediate ? roce::PacketType::kSendOnlyImmediate
                                                                       : roce::PacketType::kSendOnly);
  packet.bth.solicited = datagram.solicited;
  packet.bth.pkey = datagram.pkey;
  packet.bth.destination_qpn = datagram.destination_qpn;
  packet.bth.psn = datagram.psn;
  packet.deth = {datagram.qkey, datagram.source_qpn};
  packet.immediate = {datagram.immediate};
  packet.payload = datagram.payload;
  return packet;
}

Refused accept(const roce::Packet& packet, uint16_t pkey, uint32_t qkey, uint32_t mtu,
               Datagram* out) noexcept {
  const roce::OpcodeInfo* const info = roce::find_opcode(packet.bth.opcode);
  if (info == nullptr || info->transport != roce::TransportKind::kUd) return Refused::kNoDatagram;
  if (!pkeys_match(packet.bth.pkey, pkey)) return Refused::kWrongPkey;
  if (packet.deth.qkey != qkey) return Refused::kWrongQkey;
  if (packet.payload.size() > mtu) return Refused::kTooLong;
  *out = {packet.bth.destination_qpn,
          packet.deth.source_qpn,
          packet.deth.qkey,
          packet.bth.psn,
          packet.bth.pkey,
          packet.bth.solicited,
          (info->headers & roce::kHasImmDt) != 0,
          packet.immediate.immediate,
          packet.payload};
  return Refused::kNot;
}

}  // namespace verbena::packets
