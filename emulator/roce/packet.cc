// SPDX-License-Identifier: BSD-2-Clause
#include "roce/packet.h"

#include <cstring>

namespace verbena::roce {
namespace {

// Calls apply(bit, header) for each header after the BTH, in the order of the packet.
template <typename PacketType, typename Apply>
void for_each_header(PacketType& packet, Apply apply) {
  apply(kHasDeth, packet.deth);
  apply(kHasXrceth, packet.xrceth);
  apply(kHasReth, packet.reth);
  apply(kHasAtomicEth, packet.atomic);
  apply(kHasAeth, packet.aeth);
  apply(kHasAtomicAckEth, packet.atomic_ack);
  apply(kHasImmDt, packet.immediate);
  apply(kHasIeth, packet.invalidate);
}

template <typename T>
constexpr size_t size_of(const T&) {
  return Layout<T>::kSize;
}

size_t headers_size(const Packet& packet, uint16_t headers) {
  size_t size = Layout<Bth>::kSize;
  for_each_header(packet, [&](HeaderBit bit, const auto& header) {
    if ((headers & bit) != 0) size += size_of(header);
  });
  return size;
}

constexpr uint8_t padding_of(size_t payload) { return static_cast<uint8_t>(-payload & 3); }

}  // namespace

Parsed parse(std::span<const uint8_t> datagram, Packet* out) noexcept {
  if (datagram.size() < Layout<Bth>::kSize + kIcrcSize) return Parsed::kTooShort;
  *out = {};
  out->bth = decode<Bth>(datagram.data());
  if (out->bth.version != 0) return Parsed::kBadVersion;
  const OpcodeInfo* const info = find_opcode(out->bth.opcode);
  if (info == nullptr) return Parsed::kUnknownOpcode;
  const size_t headers = headers_size(*out, info->headers);
  if (datagram.size() < headers + kIcrcSize) return Parsed::kTooShort;
  const uint8_t* at = datagram.data() + Layout<Bth>::kSize;
  for_each_header(*out, [&]<typename T>(HeaderBit bit, T& header) {
    if ((info->headers & bit) == 0) return;
    header = decode<T>(at);
    at += Layout<T>::kSize;
  });
  const size_t rest = datagram.size() - headers - kIcrcSize;
  if (rest != 0 && !info->has_payload) return Parsed::kUnexpectedPayload;
  if (out->bth.pad > rest || rest % 4 != 0) return Parsed::kBadPadding;
  out->payload = datagram.subspan(headers, rest - out->bth.pad);
  return Parsed::kPacket;
}

size_t packet_size(const Packet& packet) noexcept {
  const OpcodeInfo* const info = find_opcode(packet.bth.opcode);
  if (info == nullptr) return 0;
  return headers_size(packet, info->headers) + packet.payload.size() + padding_of(packet.payload.size());
}

size_t write(const Packet& packet, std::span<uint8_t> out) noexcept {
  const size_t size = packet_size(packet);
  if (size == 0 || size > out.size()) return 0;
  const OpcodeInfo& info = *find_opcode(packet.bth.opcode);
  Bth bth = packet.bth;
  bth.pad = padding_of(packet.payload.size());
  uint8_t* at = out.data();
  encode(bth, at);
  at += Layout<Bth>::kSize;
  for_each_header(packet, [&](HeaderBit bit, const auto& header) {
    if ((info.headers & bit) == 0) return;
    encode(header, at);
    at += size_of(header);
  });
  if (!packet.payload.empty() && packet.payload.data() != at)
    std::memcpy(at, packet.payload.data(), packet.payload.size());
  std::memset(at + packet.payload.size(), 0, bth.pad);
  return size;
}

}  // namespace verbena::roce
