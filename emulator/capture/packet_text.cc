// SPDX-License-Identifier: BSD-2-Clause
#include "capture/packet_text.h"

#include <arpa/inet.h>

#include <cstdio>
#include <cstring>

#include "roce/syndrome.h"

namespace verbena::capture {
namespace {

using enum roce::PacketType;

// As table 38 of vol. 1 names them.
const char* name_of(roce::PacketType type) {
  switch (type) {
    case kSendFirst:
      return "SEND_FIRST";
    case kSendMiddle:
      return "SEND_MIDDLE";
    case kSendLast:
      return "SEND_LAST";
    case kSendLastImmediate:
      return "SEND_LAST_WITH_IMMEDIATE";
    case kSendOnly:
      return "SEND_ONLY";
    case kSendOnlyImmediate:
      return "SEND_ONLY_WITH_IMMEDIATE";
    case kWriteFirst:
      return "RDMA_WRITE_FIRST";
    case kWriteMiddle:
      return "RDMA_WRITE_MIDDLE";
    case kWriteLast:
      return "RDMA_WRITE_LAST";
    case kWriteLastImmediate:
      return "RDMA_WRITE_LAST_WITH_IMMEDIATE";
    case kWriteOnly:
      return "RDMA_WRITE_ONLY";
    case kWriteOnlyImmediate:
      return "RDMA_WRITE_ONLY_WITH_IMMEDIATE";
    case kReadRequest:
      return "RDMA_READ_REQUEST";
    case kReadResponseFirst:
      return "RDMA_READ_RESPONSE_FIRST";
    case kReadResponseMiddle:
      return "RDMA_READ_RESPONSE_MIDDLE";
    case kReadResponseLast:
      return "RDMA_READ_RESPONSE_LAST";
    case kReadResponseOnly:
      return "RDMA_READ_RESPONSE_ONLY";
    case kAcknowledge:
      return "ACKNOWLEDGE";
    case kAtomicAcknowledge:
      return "ATOMIC_ACKNOWLEDGE";
    case kCompareSwap:
      return "COMPARE_SWAP";
    case kFetchAdd:
      return "FETCH_ADD";
    case kSendLastInvalidate:
      return "SEND_LAST_WITH_INVALIDATE";
    case kSendOnlyInvalidate:
      return "SEND_ONLY_WITH_INVALIDATE";
    case kAtomicWrite:
      return "ATOMIC_WRITE";
  }
  return "?";
}

const char* name_of(roce::TransportKind transport) {
  switch (transport) {
    case roce::TransportKind::kRc:
      return "RC";
    case roce::TransportKind::kUc:
      return "UC";
    case roce::TransportKind::kRd:
      return "RD";
    case roce::TransportKind::kUd:
      return "UD";
    case roce::TransportKind::kCnp:
      return "CNP";
    case roce::TransportKind::kXrc:
      return "XRC";
  }
  return "?";
}

std::string address_text(const std::array<uint8_t, 16>& gid) {
  char text[INET6_ADDRSTRLEN] = "?";
  constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (std::memcmp(gid.data(), kMapped, sizeof kMapped) == 0)
    inet_ntop(AF_INET, &gid[12], text, sizeof text);
  else
    inet_ntop(AF_INET6, gid.data(), text, sizeof text);
  return text;
}

std::string reply_text(uint8_t syndrome) {
  const unsigned value = roce::value_of(syndrome);
  switch (roce::kind_of(syndrome)) {
    case roce::SyndromeKind::kAck:
      return "";
    case roce::SyndromeKind::kRnrNak:
      return " RNR NAK, timer " + std::to_string(value);
    case roce::SyndromeKind::kReserved:
      return " syndrome " + std::to_string(syndrome);
    case roce::SyndromeKind::kNak:
      break;
  }
  constexpr const char* kCodes[] = {"PSN sequence error", "invalid request", "remote access error",
                                    "remote operational error", "invalid RD request"};
  return std::string(" NAK, ") + (value < std::size(kCodes) ? kCodes[value] : "?");
}

}  // namespace

namespace {

std::string hardware_text(std::span<const uint8_t> address) {
  char text[18];
  std::snprintf(text, sizeof text, "%02x:%02x:%02x:%02x:%02x:%02x", address[0], address[1], address[2],
                address[3], address[4], address[5]);
  return text;
}

std::string frame_text(const CapturedPacket& captured) {
  constexpr size_t kAddress = 6, kHeader = 14;
  const std::span<const uint8_t> frame = captured.frame;
  const std::string length = std::to_string(captured.length) + " bytes";
  if (frame.size() < kHeader) return "Ethernet " + length;
  char type[16];
  std::snprintf(type, sizeof type, "0x%02x%02x", frame[2 * kAddress], frame[2 * kAddress + 1]);
  return hardware_text(frame.subspan(kAddress, kAddress)) + " > " + hardware_text(frame.first(kAddress)) +
         " Ethernet, type " + type + ", " + length;
}

}  // namespace

std::string packet_text(const CapturedPacket& captured) {
  if (captured.packet == nullptr) return frame_text(captured);
  const roce::Packet& packet = *captured.packet;
  const roce::OpcodeInfo* const info = roce::find_opcode(packet.bth.opcode);
  if (info == nullptr) return "?";
  char numbers[96];
  std::snprintf(numbers, sizeof numbers, " QP 0x%06x PSN 0x%06x", packet.bth.destination_qpn, packet.bth.psn);
  std::string text = address_text(captured.route->source) + " > " +
                     address_text(captured.route->destination) + " " + name_of(info->transport) + " " +
                     name_of(info->type) + numbers;
  if (info->has_payload) text += " " + std::to_string(packet.payload.size()) + " bytes";
  if ((info->headers & roce::kHasAeth) != 0) text += reply_text(packet.aeth.syndrome);
  return text;
}

}  // namespace verbena::capture
