// SPDX-License-Identifier: BSD-2-Clause
//
// Any packets of RoCE v2 to a process that has queue pairs of each kind connected to the sender's address,
// and a connection manager that listens.
// - No crash, and every wait ends.
// - Memory without remote rights neither changes nor is disclosed.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "cm/message.h"
#include "cm/message_fields.h"
#include "cm_attack.h"
#include "input.h"
#include "loopback_node.h"
#include "roce/mad.h"
#include "roce/opcode.h"
#include "roce/packet.h"
#include "roce/syndrome.h"
#include "udp/roce_socket.h"
#include "victim.h"

namespace verbena::fuzz {
namespace {

using roce::PacketType;
using roce::TransportKind;

constexpr uint32_t kEverybody = 0xffffff;                                 // the QPN of groups
constexpr uint64_t kTcpService = 0x0106'0000, kUdpService = 0x0111'0000;  // service ids, but for the port

class Attacker {
 public:
  Attacker() {
    std::string problem;
    require(socket_.open(loopback(kStrangers), udp::kRocePort, &problem) == 0, problem.c_str());
  }

  void begin_again() { psn_ = {}; }

  // One packet.
  void step(Victim& victim, Input& input) {
    switch (input.below(16)) {
      case 0:
        return send_noise(input);
      case 1:
      case 2:
        return send_mad(input);
      case 3:
        return send_datagram(victim, input);
      default:
        return send_to_connection(victim, input);
    }
  }

  // What the victim has sent.
  void hear() {
    udp::ReceivedPacket received;
    for (udp::Arrival arrival; (arrival = socket_.receive(buffer_, &received)) != udp::Arrival::kNothing;) {
      roce::Packet packet;
      if (arrival != udp::Arrival::kPacket ||
          roce::parse(received.datagram, &packet) != roce::Parsed::kPacket)
        continue;
      const auto& secret = Victim::secret();
      require(std::search(packet.payload.begin(), packet.payload.end(), secret.begin(), secret.end()) ==
                  packet.payload.end(),
              "memory without remote rights is not disclosed");
      if (packet.bth.destination_qpn != roce::kManagementQpn || packet.payload.size() != cm::kMadSize)
        continue;
      cm::Message message;
      if (cm::decode_mad(packet.payload.first<cm::kMadSize>(), loopback(kVictim).bytes,
                         loopback(kStrangers).bytes, &message))
        last_heard_ = message;
    }
  }

 private:
  void send(const roce::Packet& packet, Input& input, const wire::NetAddress& to = loopback(kVictim)) {
    std::array<uint8_t, roce::kMaxPacket> bytes;
    const size_t size = roce::write(packet, bytes);
    if (size == 0) return;
    if (input.below(16) == 0) bytes[input.take<uint16_t>() % size] ^= input.byte();
    const udp::IpFields fields{input.below(8) == 0 ? udp::kCongestionExperienced : udp::kEcnCapable};
    socket_.send({to, udp::kRocePort}, fields, std::span(bytes).first(size + roce::kIcrcSize));
  }

  void send_noise(Input& input) {
    std::array<uint8_t, 300> bytes;
    input.take(bytes.data(), bytes.size());
    socket_.send({loopback(kVictim), udp::kRocePort}, {}, std::span(bytes).first(16 + input.byte()));
  }

  void send_to_connection(Victim& victim, Input& input) {
    static constexpr QueueName kConnected[] = {kOrdinary,   kOrdinary, kOrdinary, kWriteOnly,
                                               kUnreliable, kExtended, kExtended, kExtendedSender};
    const QueueName name = kConnected[input.below(std::size(kConnected))];
    const Queue& queue = victim.queues[name];
    static constexpr PacketType kTypes[] = {
        PacketType::kSendOnly,         PacketType::kSendFirst,          PacketType::kSendLast,
        PacketType::kSendMiddle,       PacketType::kSendOnlyImmediate,  PacketType::kSendOnlyInvalidate,
        PacketType::kWriteOnly,        PacketType::kWriteFirst,         PacketType::kWriteMiddle,
        PacketType::kWriteLast,        PacketType::kWriteOnlyImmediate, PacketType::kReadRequest,
        PacketType::kReadRequest,      PacketType::kCompareSwap,        PacketType::kFetchAdd,
        PacketType::kAcknowledge,      PacketType::kAcknowledge,        PacketType::kAtomicAcknowledge,
        PacketType::kReadResponseOnly, PacketType::kReadResponseFirst,  PacketType::kReadResponseMiddle,
        PacketType::kReadResponseLast, PacketType::kAtomicWrite};
    const PacketType type = kTypes[input.below(std::size(kTypes))];
    const bool is_extended = queue.type == IBV_QPT_XRC_RECV || queue.type == IBV_QPT_XRC_SEND;
    const auto transport = queue.type == IBV_QPT_UC ? TransportKind::kUc
                           : is_extended            ? TransportKind::kXrc
                                                    : TransportKind::kRc;
    roce::Packet packet;
    packet.bth.opcode = roce::opcode_of(input.below(16) == 0 ? TransportKind::kUc : transport, type);
    const roce::OpcodeInfo* const info = roce::find_opcode(packet.bth.opcode);
    if (info == nullptr) return;
    packet.bth.destination_qpn = queue.number();
    if (input.below(32) == 0) packet.bth.pkey = input.take<uint16_t>();
    packet.xrceth = {input.below(8) == 0
                         ? input.take<uint32_t>() & 0xffffff
                         : srq_number(input.below(2) == 0 ? victim.small_shared : victim.large_shared)};
    packet.bth.ack_requested = input.below(2) == 0;
    packet.bth.solicited = input.below(4) == 0;
    const bool answers = type >= PacketType::kReadResponseFirst && type <= PacketType::kAtomicAcknowledge;
    uint32_t& psn = psn_[name];
    packet.bth.psn =
        (answers ? input.below(8) : psn + (input.below(8) == 0 ? input.byte() - 128u : 0)) & 0xffffff;
    const Part* const parts[] = {&victim.open,     &victim.open,   &victim.open,     &victim.readable,
                                 &victim.windowed, &victim.closed, &victim.receives, &victim.honest};
    const Part& part = *parts[input.below(std::size(parts))];
    const Part& keyed = input.below(4) == 0 ? *parts[input.below(std::size(parts))] : part;
    const uint64_t address =
        part.address() + (&part == &victim.windowed ? Victim::kBound : 0) + input.take<uint16_t>() - 16u;
    const uint32_t rkey = &part == &victim.windowed ? victim.window_key : mr_rkey(keyed.mr);
    packet.reth = {address, rkey, input.below(4) == 0 ? input.take<uint32_t>() : input.take<uint16_t>()};
    packet.atomic = {address & ~uint64_t{7}, rkey, input.take<uint64_t>(), input.take<uint64_t>()};
    packet.aeth = {input.below(2) == 0 ? roce::ack_syndrome() : input.byte(), input.byte()};
    packet.immediate = {input.take<uint32_t>()};
    packet.invalidate = {input.below(2) == 0 ? victim.window_key : input.take<uint32_t>()};
    size_t size = !info->has_payload ? 0 : !info->ends ? 1024u : input.take<uint16_t>() % 1025u;
    if (info->operation == roce::Operation::kAtomicWrite && input.below(8) != 0) {
      size = 8;
      packet.reth = {address & ~uint64_t{7}, rkey, 8};
    }
    payload_.assign(size, input.byte());
    packet.payload = payload_;
    if (info->operation == roce::Operation::kWrite && info->ends && info->begins)
      packet.reth.length = static_cast<uint32_t>(size);
    send(packet, input);
    if (!answers) psn += info->operation == roce::Operation::kRead ? packet.reth.length / 1024u + 1 : 1;
  }

  void send_datagram(Victim& victim, Input& input) {
    roce::Packet packet;
    packet.bth.opcode = roce::opcode_of(
        TransportKind::kUd, input.below(2) == 0 ? PacketType::kSendOnly : PacketType::kSendOnlyImmediate);
    const bool to_group = input.below(4) == 0;
    packet.bth.destination_qpn = input.below(8) == 0 ? input.take<uint32_t>() & 0xffffff
                                 : to_group          ? kEverybody
                                                     : victim.queues[kDatagrams].number();
    packet.deth = {input.below(8) == 0 ? input.take<uint32_t>() : kQkey, input.take<uint32_t>() & 0xffffff};
    payload_.assign(input.take<uint16_t>() % 4200u % 4097u, input.byte());
    packet.payload = payload_;
    send(packet, input, to_group ? wire::NetAddress::of_gid(victim.group.raw) : loopback(kVictim));
  }

  void send_mad(Input& input) {
    using enum cm::Field;
    cm::Message m;
    const bool answers = last_heard_.kind != cm::MessageKind{} && input.below(2) == 0;
    static constexpr cm::MessageKind kRequests[] = {cm::MessageKind::kReq, cm::MessageKind::kSidrReq};
    m.kind = !answers && input.below(4) != 0 ? kRequests[input.below(2)]
                                             : static_cast<cm::MessageKind>(0x10 + input.below(9));
    for (const cm::FieldPlace& place : cm::layout_of(m.kind)->fields) m[place.field] = place.min;
    m.source = loopback(kStrangers).bytes;
    m.destination = loopback(kVictim).bytes;
    m[kTransaction] = answers ? last_heard_[kTransaction] : input.byte();
    m[kLocalId] = answers ? last_heard_[kRemoteId] : 1u + input.below(8);
    m[kRemoteId] = answers ? last_heard_[kLocalId] : input.byte();
    m[kServiceId] = (m.kind == cm::MessageKind::kSidrReq ? kUdpService : kTcpService) +
                    CmVictim::kServicePort + (input.below(8) == 0 ? 1 : 0);
    m[kQpn] = 0x31 + input.below(4);
    m[kRemoteQpn] = answers ? last_heard_[kQpn] : 0;
    m.primary_local = m.source;
    m.primary_remote = m.destination;
    m.private_data[1] = 0x40;  // the CMA header: IPv4
    std::copy_n(m.source.data() + 12, 4, m.private_data.data() + 16);
    std::copy_n(m.destination.data() + 12, 4, m.private_data.data() + 32);
    for (uint8_t odd = input.below(4); odd > 2; --odd) {
      const auto fields = cm::layout_of(m.kind)->fields;
      m[fields[input.byte() % fields.size()].field] = input.take<uint64_t>();
    }
    cm::Frame frame;
    cm::encode(m, frame);
    roce::Packet packet;
    packet.bth.opcode = roce::opcode_of(TransportKind::kUd, PacketType::kSendOnly);
    packet.bth.destination_qpn = roce::kManagementQpn;
    packet.deth = {roce::kManagementQkey, roce::kManagementQpn};
    payload_.assign(frame.begin() + cm::kFrameHead, frame.end());
    packet.payload = payload_;
    send(packet, input);
  }

  udp::RoceSocket socket_;
  udp::PacketBuffer buffer_;
  std::array<uint32_t, kQueues> psn_{};
  std::vector<uint8_t> payload_;
  cm::Message last_heard_;
};

// Never destroyed: its threads work as long as the process.
struct Scene {
  Victim victim{NetworkKind::kRoce};
  CmVictim connections;
  Attacker attacker;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Scene& scene = *new Scene;
  static const RemoveAtExit folder{scene.victim.folder()};
  Input input(data, size);
  scene.victim.begin_again();
  scene.attacker.begin_again();
  for (int i = 0; i < 128 && !input.empty(); ++i) {
    if (input.below(8) == 0) scene.victim.post_requests(input);
    if (input.below(64) == 0) scene.victim.register_again();
    scene.attacker.step(scene.victim, input);
    if (i % 8 != 7) continue;
    scene.victim.poll();
    scene.attacker.hear();
    scene.connections.settle(input);
  }
  scene.victim.poll();
  scene.attacker.hear();
  scene.victim.require_untouched();
  return 0;
}

}  // namespace verbena::fuzz
