// SPDX-License-Identifier: BSD-2-Clause
#include "capture/packet_builder.h"

#include <arpa/inet.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "emulator.h"
#include "engine/rules/psn.h"
#include "engine/rules/route.h"
#include "roce/mad.h"
#include "roce/syndrome.h"

namespace verbena::capture {
namespace {

using record::MessageRecord;
using roce::PacketType;

constexpr uint32_t kShortestMtu = 256, kLongestPacket = 4096;
constexpr uint32_t kLongestFrame = 0xffff;  // bytes; of a ring that is damaged

roce::TransportKind transport_of(uint8_t type) {
  if (type == IBV_QPT_UC) return roce::TransportKind::kUc;
  if (type == IBV_QPT_UD) return roce::TransportKind::kUd;
  return type == IBV_QPT_XRC_SEND ? roce::TransportKind::kXrc : roce::TransportKind::kRc;
}

bool is_acknowledged(uint8_t type) { return type != IBV_QPT_UC && type != IBV_QPT_UD; }

bool is_send(uint8_t opcode) {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_SEND_WITH_INV;
}

bool has_immediate(uint8_t opcode) {
  return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

bool is_atomic(uint8_t opcode) {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

bool is_atomic_write(uint8_t opcode) { return opcode == static_cast<unsigned>(kAtomicWrite); }

// SEND, WRITE and ATOMIC WRITE.
PacketType data_type(uint8_t opcode, bool is_first, bool is_last) {
  if (is_atomic_write(opcode)) return PacketType::kAtomicWrite;
  const bool send = is_send(opcode), immediate = has_immediate(opcode);
  if (is_first && is_last) {
    if (opcode == IBV_WR_SEND_WITH_INV) return PacketType::kSendOnlyInvalidate;
    if (send) return immediate ? PacketType::kSendOnlyImmediate : PacketType::kSendOnly;
    return immediate ? PacketType::kWriteOnlyImmediate : PacketType::kWriteOnly;
  }
  if (is_first) return send ? PacketType::kSendFirst : PacketType::kWriteFirst;
  if (!is_last) return send ? PacketType::kSendMiddle : PacketType::kWriteMiddle;
  if (opcode == IBV_WR_SEND_WITH_INV) return PacketType::kSendLastInvalidate;
  if (send) return immediate ? PacketType::kSendLastImmediate : PacketType::kSendLast;
  return immediate ? PacketType::kWriteLastImmediate : PacketType::kWriteLast;
}

PacketType response_type(bool is_first, bool is_last) {
  if (is_first) return is_last ? PacketType::kReadResponseOnly : PacketType::kReadResponseFirst;
  return is_last ? PacketType::kReadResponseLast : PacketType::kReadResponseMiddle;
}

bool is_sound(const MessageRecord& record, size_t payload) {
  if (record.mtu < kShortestMtu || record.mtu > kLongestPacket || !std::has_single_bit(record.mtu) ||
      record.offset > record.end || record.end > record.length || record.kept > payload)
    return false;
  if (is_atomic_write(record.opcode) && record.length > record.mtu) return false;
  if (record.transport == IBV_QPT_UD && (record.length > record.mtu || !is_send(record.opcode))) return false;
  return record.kept ==
         record::for_each_kept(record.offset, record.end, record.mtu, record.snap, [](uint32_t, uint32_t) {});
}

// A record, and the bytes that it has kept. Nothing, if it cannot be one.
template <typename Record>
std::optional<std::pair<Record, std::span<const uint8_t>>> open_record(std::span<const std::byte> bytes) {
  Record record;
  if (bytes.size() < sizeof record) return std::nullopt;
  std::memcpy(&record, bytes.data(), sizeof record);
  const std::span rest(reinterpret_cast<const uint8_t*>(bytes.data()) + sizeof record,
                       bytes.size() - sizeof record);
  if (record.kept > rest.size() || record.kept > record.length) return std::nullopt;
  return std::pair(record, rest.first(record.kept));
}

}  // namespace

struct PacketBuilder::Message {
  const MessageRecord& record;
  std::span<const uint8_t> payload;
  Partial& partial;

  uint32_t last_packet() const { return record.length == 0 ? 0 : (record.length - 1) / record.mtu; }
  uint32_t psn_of_packet(uint32_t packet) const { return psn_add(record.psn, packet); }
};

void PacketBuilder::take(uint32_t ring, std::span<const std::byte> bytes) {
  record::Head head;
  if (bytes.size() < sizeof head) return;
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.kind == record::Kind::kPacket) {
    if (const auto found = open_record<record::PacketRecord>(bytes)) take_packet(found->first, found->second);
    return;
  }
  if (head.kind == record::Kind::kFrame) {
    if (const auto found = open_record<record::FrameRecord>(bytes)) take_frame(found->first, found->second);
    return;
  }
  if (head.kind != record::Kind::kMessage || bytes.size() < sizeof(MessageRecord)) return;
  MessageRecord record;
  std::memcpy(&record, bytes.data(), sizeof record);
  const std::span payload(reinterpret_cast<const uint8_t*>(bytes.data()) + sizeof record,
                          bytes.size() - sizeof record);
  if (is_sound(record, payload.size())) take_message(ring, record, payload.first(record.kept));
}

void PacketBuilder::take_packet(const record::PacketRecord& record, std::span<const uint8_t> bytes) {
  uint8_t datagram[roce::kMaxPacket] = {};
  if (record.length + roce::kIcrcSize > sizeof datagram) return;
  std::memcpy(datagram, bytes.data(), bytes.size());
  roce::Packet packet;
  if (roce::parse(std::span(datagram).first(record.length + roce::kIcrcSize), &packet) !=
      roce::Parsed::kPacket)
    return;
  const std::span<const uint8_t> frame = frames_.make(record.route, record.port, packet);
  size_t captured = frame.size();
  if (record.kept < record.length) captured -= record.length - record.kept + roce::kIcrcSize;
  sink_({record.head.time, frame.first(std::min<size_t>(captured, snap_)),
         static_cast<uint32_t>(frame.size()), &record.route, &packet});
}

void PacketBuilder::take_frame(const record::FrameRecord& record, std::span<const uint8_t> bytes) {
  if (record.length > kLongestFrame) return;
  sink_({record.head.time, bytes.first(std::min<size_t>(bytes.size(), snap_)), record.length});
}

void PacketBuilder::take_message(uint32_t ring, const MessageRecord& record,
                                 std::span<const uint8_t> payload) {
  Partial& partial = partial_[{ring, record.source_qpn}];
  if (record.offset == 0 || partial.psn != record.psn)
    partial = {.psn = record.psn, .packet = UINT32_MAX, .bytes = {}};
  const Message message{record, payload, partial};
  const bool is_read = record.opcode == IBV_WR_RDMA_READ, atomic = is_atomic(record.opcode);
  if (!is_read && !atomic)
    send_data(message);
  else if (record.offset == 0)
    send_request(message);
  const uint32_t next = psn_add(record.psn, record.offset / record.mtu);
  switch (record.reply) {
    case Reply::kMore:
    case Reply::kAcknowledged:
      if (is_read || atomic || is_atomic_write(record.opcode))
        send_response(message);
      else if (record.reply == Reply::kAcknowledged)
        reply(message, message.psn_of_packet(message.last_packet()), roce::ack_syndrome());
      break;
    case Reply::kRnr:
      reply(message, next, roce::rnr_syndrome(record.rnr_timer));
      break;
    case Reply::kInvalidRequest:
      reply(message, next, roce::nak_syndrome(roce::NakCode::kInvalidRequest));
      break;
    case Reply::kRemoteAccess:
      reply(message, next, roce::nak_syndrome(roce::NakCode::kRemoteAccess));
      break;
    case Reply::kRemoteOperation:
      reply(message, next, roce::nak_syndrome(roce::NakCode::kRemoteOperation));
      break;
    default:
      break;
  }
}

roce::Packet PacketBuilder::begin(const Message& message, PacketType type, uint32_t psn,
                                  bool is_reply) const {
  const MessageRecord& record = message.record;
  roce::Packet packet{};
  packet.bth.opcode = roce::opcode_of(transport_of(record.transport), type);
  packet.bth.migrated = true;
  packet.bth.pkey = record.pkey;
  packet.bth.psn = psn & kPsnMask;
  packet.bth.destination_qpn = is_reply ? record.source_qpn : record.target_qpn;
  packet.aeth = {roce::ack_syndrome(), record.msn & kPsnMask};
  packet.xrceth.srqn = record.srqn & kPsnMask;
  return packet;
}

// Calls each(packet number, its payload, bytes kept of that) for the packets that the record completes.
template <typename Each>
void PacketBuilder::for_each_packet(const Message& message, Each each) {
  const MessageRecord& record = message.record;
  std::span<const uint8_t> rest = message.payload;
  Partial& partial = message.partial;
  const uint32_t last = message.last_packet();
  uint8_t bytes[kLongestPacket];
  for (uint32_t number = record.offset / record.mtu; number <= last; ++number) {
    const uint64_t start = uint64_t{number} * record.mtu;
    const auto stop = static_cast<uint32_t>(std::min<uint64_t>(start + record.mtu, record.length));
    if (start >= record.end && record.length != 0) return;
    const auto from = static_cast<uint32_t>(std::max<uint64_t>(start, record.offset));
    const auto to = static_cast<uint32_t>(std::min<uint64_t>({stop, start + record.snap, record.end}));
    const std::span<const uint8_t> here = rest.first(to > from ? to - from : 0);
    rest = rest.subspan(here.size());
    const bool continues = from != start;
    if (continues && partial.packet != number) {
      if (stop <= record.end) ++incomplete_;
      continue;
    }
    if (stop > record.end) {
      if (!continues) partial.bytes.clear();
      partial.packet = number;
      partial.bytes.insert(partial.bytes.end(), here.begin(), here.end());
      return;
    }
    const size_t before = continues ? partial.bytes.size() : 0;
    const auto size = static_cast<uint32_t>(stop - start);
    const size_t kept = std::min<size_t>(before + here.size(), size);
    if (before != 0) std::memcpy(bytes, partial.bytes.data(), std::min<size_t>(before, size));
    if (kept > before) std::memcpy(bytes + before, here.data(), kept - before);
    std::memset(bytes + kept, 0, size - kept);
    each(number, std::span<const uint8_t>(bytes, size), kept);
  }
}

void PacketBuilder::send_data(const Message& message) {
  const MessageRecord& record = message.record;
  const uint32_t last = message.last_packet();
  for_each_packet(message, [&](uint32_t number, std::span<const uint8_t> payload, size_t kept) {
    roce::Packet packet = begin(message, data_type(record.opcode, number == 0, number == last),
                                message.psn_of_packet(number), false);
    packet.bth.ack_requested = number == last && is_acknowledged(record.transport);
    packet.bth.solicited = number == last && record.solicited != 0;
    packet.reth = {record.remote_address, record.rkey, record.length};
    packet.immediate.immediate = ntohl(record.immediate);
    packet.invalidate.rkey = record.immediate;
    packet.deth = {record.rkey, record.source_qpn};
    if (record.transport == IBV_QPT_UD && record.source_qpn == roce::kManagementQpn)
      packet.bth.psn = mad_psn_++ & kPsnMask;
    packet.payload = payload;
    emit(message, packet, kept, false);
  });
}

void PacketBuilder::send_request(const Message& message) {
  const MessageRecord& record = message.record;
  const PacketType type = record.opcode == IBV_WR_RDMA_READ            ? PacketType::kReadRequest
                          : record.opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? PacketType::kCompareSwap
                                                                       : PacketType::kFetchAdd;
  roce::Packet packet = begin(message, type, record.psn, false);
  packet.bth.ack_requested = true;
  packet.bth.solicited = record.solicited != 0;
  packet.reth = {record.remote_address, record.rkey, record.length};
  packet.atomic = {record.remote_address, record.rkey, record.swap, record.compare_add};
  if (type == PacketType::kFetchAdd) packet.atomic.swap_add = record.compare_add, packet.atomic.compare = 0;
  emit(message, packet, 0, false);
}

void PacketBuilder::send_response(const Message& message) {
  const MessageRecord& record = message.record;
  if (is_atomic(record.opcode)) {
    roce::Packet packet = begin(message, PacketType::kAtomicAcknowledge, record.psn, true);
    if (message.payload.size() == sizeof packet.atomic_ack.before)
      std::memcpy(&packet.atomic_ack.before, message.payload.data(), sizeof packet.atomic_ack.before);
    return emit(message, packet, 0, true);
  }
  // rxe_resp.c of Linux 6.2: as a READ of no bytes.
  if (is_atomic_write(record.opcode))
    return emit(message, begin(message, PacketType::kReadResponseOnly, record.psn, true), 0, true);
  const uint32_t last = message.last_packet();
  for_each_packet(message, [&](uint32_t number, std::span<const uint8_t> payload, size_t kept) {
    roce::Packet packet =
        begin(message, response_type(number == 0, number == last), message.psn_of_packet(number), true);
    packet.payload = payload;
    emit(message, packet, kept, true);
  });
}

void PacketBuilder::reply(const Message& message, uint32_t psn, uint8_t syndrome) {
  if (!is_acknowledged(message.record.transport)) return;
  roce::Packet packet = begin(message, PacketType::kAcknowledge, psn, true);
  packet.aeth.syndrome = syndrome;
  emit(message, packet, 0, true);
}

void PacketBuilder::emit(const Message& message, const roce::Packet& packet, size_t kept, bool is_reply) {
  const MessageRecord& record = message.record;
  const PacketRoute route = is_reply ? reversed(record.route) : record.route;
  const uint32_t source = is_reply ? record.target_qpn : record.source_qpn;
  const std::span<const uint8_t> frame =
      frames_.make(route, source_port(route.flow_label, source, packet.bth.destination_qpn), packet);
  size_t captured = frame.size();
  if (kept < packet.payload.size())
    captured -= roce::kIcrcSize + (-packet.payload.size() & 3) + packet.payload.size() - kept;
  sink_({record.head.time, frame.first(std::min<size_t>(captured, snap_)),
         static_cast<uint32_t>(frame.size()), &route, &packet});
}

}  // namespace verbena::capture
