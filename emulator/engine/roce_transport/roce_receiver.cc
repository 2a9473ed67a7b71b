// SPDX-License-Identifier: BSD-2-Clause
#include "engine/roce_transport/roce_receiver.h"

#include <algorithm>

#include "adapter/clock.h"
#include "engine/datagram/multicast.h"
#include "engine/objects/process.h"
#include "engine/packets/datagram_packet.h"
#include "roce/mad.h"
#include "roce/opcode.h"

namespace verbena {
namespace {

// Packets that one path answers before the next one does.
constexpr int kAnswersAtOnce = 32;
// NAKs for packets out of order, to one peer. There is one for each gap; a flood of gaps is no traffic. A
// requester that gets none sends again after its timeout.
constexpr packets::AnswerRate kNaks{1000, 10000};

bool is_response_packet(roce::Operation operation) {
  return operation == roce::Operation::kAcknowledge || operation == roce::Operation::kReadResponse ||
         operation == roce::Operation::kAtomicAcknowledge || operation == roce::Operation::kCongestion;
}

}  // namespace

RoceReceiver::RoceReceiver(Process& process) : process_(process), naks_(kNaks), datagrams_(process) {}

void RoceReceiver::add_route(uint32_t qpn, std::shared_ptr<RocePath> path) {
  remove_route(qpn);
  routes_[qpn] = std::move(path);
}

void RoceReceiver::remove_route(uint32_t qpn) {
  const auto found = routes_.find(qpn);
  if (found == routes_.end()) return;
  std::erase(answering_, found->second);
  std::erase(requesting_, found->second);
  routes_.erase(found);
}

std::shared_ptr<RocePath> RoceReceiver::find(uint32_t qpn) const {
  const auto found = routes_.find(qpn);
  return found != routes_.end() ? found->second : nullptr;
}

bool RoceReceiver::is_for(const RocePath& path, const roce::Packet& packet, const wire::NetAddress& from,
                          const wire::NetAddress& to) const {
  const bool is_of_peer = path.peer().address == from && path.own_address() == to;
  if (is_of_peer && packets::pkeys_match(packet.bth.pkey, roce::kDefaultPkey)) return true;
  process_.directory().count_drop(is_of_peer ? PacketDrop::kPkey : PacketDrop::kUnknown);
  return false;
}

bool RoceReceiver::take(std::span<const uint8_t> datagram, const wire::NetAddress& from,
                        const wire::NetAddress& to, const udp::IpFields& ip, int64_t now, uint32_t* qpn) {
  roce::Packet packet;
  if (roce::parse(datagram, &packet) != roce::Parsed::kPacket) return true;
  const roce::OpcodeInfo& info = *roce::find_opcode(packet.bth.opcode);
  if (info.transport == roce::TransportKind::kUd) {
    *qpn = packet.bth.destination_qpn;
    if (*qpn == roce::kManagementQpn) return false;
    datagrams_.take(packet, from, to, ip);
    return true;
  }
  if (info.transport != roce::TransportKind::kRc && info.transport != roce::TransportKind::kUc &&
      info.transport != roce::TransportKind::kXrc && info.transport != roce::TransportKind::kCnp)
    return true;
  const auto found = routes_.find(packet.bth.destination_qpn);
  if (found == routes_.end()) {
    *qpn = packet.bth.destination_qpn;
    return false;
  }
  const std::shared_ptr<RocePath>& path = found->second;
  if (!is_for(*path, packet, from, to)) return true;
  if (ip.is_congested()) path->take_mark(now);
  if (is_response_packet(info.operation)) {
    path->take_response(packet, now);
    if (!path->awaits_requests) requesting_.push_back(path);
    path->awaits_requests = true;
    if (!ip.is_congested()) return true;
  } else {
    must_answer_ |= path->take_request(packet);
  }
  if (!path->awaits_answers) {
    path->awaits_answers = true;
    answering_.push_back(path);
  }
  return true;
}

int64_t RoceReceiver::send_requests(int64_t now) {
  int64_t timer = kEndOfTime;
  for (const std::shared_ptr<RocePath>& path : requesting_) {
    path->awaits_requests = false;
    timer = std::min(timer, path->send_requests(now));
  }
  requesting_.clear();
  return timer;
}

void RoceReceiver::take_from_group(std::span<const uint8_t> datagram, const wire::NetAddress& from,
                                   const wire::NetAddress& group, const udp::IpFields& ip) {
  roce::Packet packet;
  if (roce::parse(datagram, &packet) == roce::Parsed::kPacket &&
      roce::find_opcode(packet.bth.opcode)->transport == roce::TransportKind::kUd &&
      packet.bth.destination_qpn == kMulticastQpn)
    datagrams_.take(packet, from, group, ip);
}

bool RoceReceiver::is_answer_due() const {
  return std::any_of(answering_.begin(), answering_.end(),
                     [](const std::shared_ptr<RocePath>& path) { return path->is_answer_due(); });
}

size_t RoceReceiver::acknowledging() const {
  const auto may_wait = [](const std::shared_ptr<RocePath>& path) { return path->let_wait(); };
  return std::all_of(answering_.begin(), answering_.end(), may_wait) ? answering_.size() : 0;
}

size_t RoceReceiver::send_answers(int64_t now) {
  must_answer_ = false;
  const auto may_refuse = [&](const wire::NetAddress& peer) {
    if (naks_.allow(peer.bytes, now)) return true;
    process_.directory().count_drop(PacketDrop::kAnswer);
    return false;
  };
  std::erase_if(answering_, [&](const std::shared_ptr<RocePath>& path) {
    if (!path->send_answers(kAnswersAtOnce, may_refuse)) return false;
    path->awaits_answers = false;
    return true;
  });
  return answering_.size();
}

}  // namespace verbena
