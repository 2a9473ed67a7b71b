// SPDX-License-Identifier: BSD-2-Clause
#include "engine/roce_transport/roce_datagrams.h"

#include <arpa/inet.h>

#include <cstring>

#include "adapter/clock.h"
#include "engine/datagram/datagram_header.h"
#include "engine/packets/datagram_packet.h"
#include "engine/remote/remote_datagram.h"
#include "engine/roce_transport/packet_sender.h"

namespace verbena {
namespace {

// An adapter sends as fast as its link. The socket's send buffer is full when a program posts faster than
// that: it waits here, ns at most, also if other threads have used the room that there was meanwhile. Then a
// tenth of a second of a link of 10 Mb/s has not made room, and the datagram is lost. So are those of the
// next time, ns, without a wait: the link is down, or addresses are being resolved that nobody has.
constexpr int64_t kFullPatience = 100'000'000;
constexpr int64_t kNoPatience = 1'000'000'000;

// Of the header that the packet is to have, which is that of the address handle.
udp::IpFields fields_of_header(const uint8_t* header) {
  if (header[0] >> 4 != 6) return {header[kGrhBytes - 20 + 1], header[kGrhBytes - 20 + 8], 0};
  uint32_t first;
  std::memcpy(&first, header, sizeof first);
  first = ntohl(first);
  return {static_cast<uint8_t>(first >> 20), header[7], first & 0xfffff};
}

}  // namespace

RoceDatagrams::RoceDatagrams(Process& process) : process_(process), source_(make_remote_sender(process)) {
  source_->origin = {&from_, 0};
}

void RoceDatagrams::send(PacketSender& sender, const DatagramTo& to, const wire::DatagramHead& head,
                         const uint8_t* bytes, uint32_t size) {
  if (size < kGrhBytes || size > kGrhBytes + kMaxDatagram) return;
  packets::Datagram datagram;
  datagram.destination_qpn = to.qpn;
  datagram.source_qpn = head.source_qpn;
  datagram.qkey = head.qkey;
  datagram.psn = psn_.fetch_add(1, std::memory_order_relaxed) & 0xffffff;
  datagram.solicited = (head.flags & kCqeSolicited) != 0;
  datagram.has_immediate = (head.flags & kCqeWithImmediate) != 0;
  datagram.immediate = ntohl(head.immediate);
  datagram.payload = {bytes + kGrhBytes, size - kGrhBytes};
  const udp::IpFields fields = fields_of_header(bytes);
  const roce::Packet packet = packets::packet_of(datagram);
  if (sender.send(to.address, fields, packet)) return;
  if (const int64_t now = now_ns(); now >= impatient_until_.load(std::memory_order_relaxed)) {
    for (const int64_t until = now + kFullPatience; sender.wait(until) && now_ns() < until;)
      if (sender.send(to.address, fields, packet)) return;
    if (sender.send(to.address, fields, packet)) return;
    impatient_until_.store(now_ns() + kNoPatience, std::memory_order_relaxed);
  }
  process_.directory().count_drop(PacketDrop::kNotSent);
}

void RoceDatagrams::take(const roce::Packet& packet, const wire::NetAddress& from, const wire::NetAddress& to,
                         const udp::IpFields& ip) {
  packets::Datagram datagram;
  // The Q_Key is checked with the queue pair (datagram/delivery.cc).
  const packets::Refused refused =
      packets::accept(packet, roce::kDefaultPkey, packet.deth.qkey, kMaxDatagram, &datagram);
  if (refused == packets::Refused::kWrongPkey) process_.directory().count_drop(PacketDrop::kPkey);
  if (refused != packets::Refused::kNot) return;
  from_ = from;
  GidEntry source{};
  source.raw = from.bytes;
  source.type = GidType::kRoceV2;
  ibv_global_route route{};
  std::memcpy(route.dgid.raw, to.bytes.data(), sizeof route.dgid.raw);
  route.traffic_class = ip.traffic_class;
  route.hop_limit = ip.hop_limit;
  route.flow_label = ip.flow_label;
  DatagramHeader header = DatagramHeader::of(source, route);
  const auto size = static_cast<uint32_t>(datagram.payload.size());
  header.set_length(size, datagram.has_immediate);
  std::memcpy(bytes_, header.bytes.data(), kGrhBytes);
  if (size != 0) std::memcpy(bytes_ + kGrhBytes, datagram.payload.data(), size);
  RemoteDatagram arrived{};
  arrived.bytes = bytes_;
  arrived.length = kGrhBytes + size;
  arrived.target_qpn = datagram.destination_qpn;
  arrived.source = {datagram.source_qpn, 0, reported_service_level(header.kind, 0), DatagramSource::kWithGrh};
  arrived.qkey = datagram.qkey;
  arrived.immediate = htonl(datagram.immediate);
  arrived.flags = static_cast<uint8_t>((datagram.has_immediate ? kCqeWithImmediate : 0) |
                                       (datagram.solicited ? kCqeSolicited : 0));
  arrived.destination = route.dgid;
  receive_remote_datagram(*source_, arrived);
}

}  // namespace verbena
