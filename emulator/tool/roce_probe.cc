// SPDX-License-Identifier: BSD-2-Clause
#include "tool/roce_probe.h"

#include <errno.h>
#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "adapter/clock.h"
#include "engine/packets/datagram_packet.h"
#include "fabric/descriptor.h"
#include "roce/cm_mad.h"
#include "roce/icrc.h"

namespace verbena::tool {
namespace {

using udp::UdpEnd;
using wire::NetAddress;

constexpr uint32_t kTimes = 9;                 // the kernel takes 3 s to say that nobody has an address
constexpr int64_t kBetween = 500'000'000;      // ns
constexpr int64_t kPatienceMtu = 300'000'000;  // for a router's message
// Nobody has these: services of the RDMA port spaces begin with 0x0000000001, and QPNs end at 0xffffff, which
// is multicast.
constexpr uint64_t kService = 0x76657262656e6100;
constexpr uint32_t kNobodysQpn = 0xfffffe;

using Datagram = std::array<uint8_t, roce::kMaxPacket>;

packets::Datagram question(std::span<const uint8_t> mad) {
  packets::Datagram datagram;
  datagram.destination_qpn = datagram.source_qpn = roce::kManagementQpn;
  datagram.qkey = roce::kManagementQkey;
  datagram.payload = mad;
  return datagram;
}

int send_packet(const udp::RoceSocket& socket, const NetAddress& to, const packets::Datagram& datagram) {
  Datagram bytes;
  const size_t size = roce::write(packets::packet_of(datagram), bytes);
  return socket.send({to, udp::kRocePort}, {}, std::span(bytes).first(size + roce::kIcrcSize));
}

int send_question(const udp::RoceSocket& socket, const NetAddress& to, uint64_t transaction) {
  std::array<uint8_t, roce::kMadSize> mad;
  roce::CmSidrReq request;
  request.request_id = static_cast<uint32_t>(transaction);
  request.pkey = roce::kDefaultPkey;
  request.service_id = kService;
  roce::write_cm_mad({transaction, request}, mad);
  return send_packet(socket, to, question(mad));
}

// With IPv4 *identification is what makes the ICRC fit.
bool icrc_fits(const UdpEnd& from, const UdpEnd& to, std::span<const uint8_t> datagram,
               uint16_t* identification) {
  const auto packet = datagram.first(datagram.size() - roce::kIcrcSize);
  const uint32_t found = roce::get_icrc(packet.data() + packet.size());
  *identification = 0;
  if (!from.address.is_ipv4()) {
    roce::Ipv6Flow flow{};
    std::copy_n(from.address.bytes.begin(), 16, flow.source);
    std::copy_n(to.address.bytes.begin(), 16, flow.destination);
    flow.source_port = from.port;
    flow.destination_port = to.port;
    return roce::icrc(flow, packet) == found;
  }
  roce::Ipv4Flow flow{};
  std::copy_n(&from.address.bytes[12], 4, flow.source);
  std::copy_n(&to.address.bytes[12], 4, flow.destination);
  flow.source_port = from.port;
  flow.destination_port = to.port;
  return roce::icrc(flow, packet) == found || roce::find_identification(flow, packet, found, identification);
}

bool is_answer(std::span<const uint8_t> datagram, uint64_t transaction) {
  roce::Packet packet;
  packets::Datagram found;
  if (roce::parse(datagram, &packet) != roce::Parsed::kPacket ||
      packets::accept(packet, roce::kDefaultPkey, roce::kManagementQkey, roce::kMadSize, &found) !=
          packets::Refused::kNot)
    return false;
  const auto mad = roce::parse_cm_mad(found.payload);
  return mad && mad->transaction_id == transaction && std::holds_alternative<roce::CmSidrRep>(mad->message);
}

Unreachable meaning_of(const sock_extended_err& error) {
  if (error.ee_origin == SO_EE_ORIGIN_ICMP && error.ee_type == ICMP_DEST_UNREACH) switch (error.ee_code) {
      case ICMP_PORT_UNREACH:
        return Unreachable::kPort;
      case ICMP_NET_UNREACH:
      case ICMP_HOST_UNREACH:
        return Unreachable::kHost;
      case ICMP_NET_ANO:
      case ICMP_HOST_ANO:
      case ICMP_PKT_FILTERED:
        return Unreachable::kFiltered;
      case ICMP_FRAG_NEEDED:
        return Unreachable::kNot;
      default:
        return Unreachable::kOther;
    }
  if (error.ee_origin == SO_EE_ORIGIN_ICMP6 && error.ee_type == ICMP6_DST_UNREACH) switch (error.ee_code) {
      case ICMP6_DST_UNREACH_NOPORT:
        return Unreachable::kPort;
      case ICMP6_DST_UNREACH_NOROUTE:
      case ICMP6_DST_UNREACH_ADDR:
        return Unreachable::kHost;
      case ICMP6_DST_UNREACH_ADMIN:
        return Unreachable::kFiltered;
      default:
        return Unreachable::kOther;
    }
  if (error.ee_origin == SO_EE_ORIGIN_LOCAL && error.ee_errno == EHOSTUNREACH) return Unreachable::kHost;
  return Unreachable::kNot;
}

// Of IP_RECVERR, which the socket keeps until it is read.
bool is_of_sender(int error) {
  return error == ECONNREFUSED || error == EHOSTUNREACH || error == EACCES || error == EPROTO ||
         error == ENOPROTOOPT || error == EMSGSIZE;
}

}  // namespace

struct RoceProbe::Arrived {
  UdpEnd from;
  std::array<uint8_t, roce::kMaxPacket + 1> bytes;
  size_t size = 0;
  std::span<const uint8_t> datagram() const { return std::span(bytes).first(size); }
};

int RoceProbe::open(const NetAddress& own, std::string* problem) {
  if (const int error = receiving_.open(own, udp::kRocePort, problem); error != 0) return error;
  // Where the source ports of RoCE v2 lie (Annex A17, A17.3.2). Any port would do.
  int error = EADDRINUSE;
  for (uint16_t port = 0xc000; error == EADDRINUSE && port < 0xc040; ++port)
    error = sending_.open(own, port, problem);
  const int on = 1;
  if (error == 0)
    setsockopt(sending_.fd(), own.is_ipv4() ? IPPROTO_IP : IPPROTO_IPV6,
               own.is_ipv4() ? IP_RECVERR : IPV6_RECVERR, &on, sizeof on);
  return error;
}

// False: nothing is there. What is too short is skipped.
bool RoceProbe::receive(Arrived* out) {
  constexpr size_t kShortest = 12 + roce::kIcrcSize;
  for (;;) {
    sockaddr_storage at{};
    socklen_t length = sizeof at;
    const ssize_t got = recvfrom(receiving_.fd(), out->bytes.data(), out->bytes.size(), MSG_DONTWAIT,
                                 reinterpret_cast<sockaddr*>(&at), &length);
    if (got < 0) return false;
    out->size = static_cast<size_t>(got);
    if (out->size < kShortest || out->size > roce::kMaxPacket || out->size % 4 != 0) continue;
    if (!NetAddress::from_socket_address(at, &out->from.address)) continue;
    out->from.port = ntohs(at.ss_family == AF_INET ? reinterpret_cast<const sockaddr_in&>(at).sin_port
                                                   : reinterpret_cast<const sockaddr_in6&>(at).sin6_port);
    return true;
  }
}

// With a timestamp of sending the kernel hands the packet back, as it left, with all headers (the kernel's
// Documentation/networking/timestamping.rst, 2.1). The IP header has no options, and ours is the end.
std::optional<uint16_t> RoceProbe::sent_identification(const NetAddress& peer) {
  if (!peer.is_ipv4()) return 0;
  const int on = SOF_TIMESTAMPING_TX_SCHED | SOF_TIMESTAMPING_SOFTWARE, off = 0;
  if (setsockopt(sending_.fd(), SOL_SOCKET, SO_TIMESTAMPING, &on, sizeof on) != 0) return {};
  std::array<uint8_t, roce::kMadSize> mad{};
  packets::Datagram datagram = question(mad);
  datagram.destination_qpn = kNobodysQpn;
  const int error = send_packet(sending_, peer, datagram);
  setsockopt(sending_.fd(), SOL_SOCKET, SO_TIMESTAMPING, &off, sizeof off);
  if (error != 0) return {};
  const size_t tail = 20 + 8 + roce::packet_size(packets::packet_of(datagram)) + roce::kIcrcSize;
  for (const int64_t until = now_ns() + kBetween; now_ns() < until;) {
    std::array<uint8_t, 512> bytes;
    alignas(cmsghdr) std::array<char, 512> control;
    iovec range{bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_iov = &range;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = recvmsg(sending_.fd(), &message, MSG_ERRQUEUE | MSG_DONTWAIT);
    if (got < static_cast<ssize_t>(tail)) {
      pollfd watched{sending_.fd(), 0, 0};
      if (got < 0) poll(&watched, 1, 50);
      continue;
    }
    const uint8_t* const ip = &bytes[static_cast<size_t>(got) - tail];
    if (ip[0] == 0x45 && ip[9] == IPPROTO_UDP) return static_cast<uint16_t>(ip[4] << 8 | ip[5]);
  }
  return {};
}

void RoceProbe::read_errors(RoceObservation* seen) {
  for (;;) {
    sockaddr_storage to{};
    std::array<uint8_t, 64> bytes;
    alignas(cmsghdr) std::array<char, 512> control;
    iovec range{bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_name = &to;
    message.msg_namelen = sizeof to;
    message.msg_iov = &range;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    if (recvmsg(sending_.fd(), &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) return;
    for (cmsghdr* each = CMSG_FIRSTHDR(&message); each != nullptr; each = CMSG_NXTHDR(&message, each)) {
      const bool is_error = (each->cmsg_level == IPPROTO_IP && each->cmsg_type == IP_RECVERR) ||
                            (each->cmsg_level == IPPROTO_IPV6 && each->cmsg_type == IPV6_RECVERR);
      if (!is_error) continue;
      auto* const error = reinterpret_cast<sock_extended_err*>(CMSG_DATA(each));
      const Unreachable meaning = meaning_of(*error);
      if (meaning == Unreachable::kNot) continue;
      seen->unreachable = meaning;
      sockaddr_storage by{};
      const size_t room = each->cmsg_len - CMSG_LEN(sizeof *error);
      std::memcpy(&by, SO_EE_OFFENDER(error), std::min(room, sizeof(sockaddr_in6)));
      if (NetAddress who; NetAddress::from_socket_address(by, &who) && who != NetAddress{})
        seen->said_by = who;
    }
  }
}

RoceObservation RoceProbe::ask(const NetAddress& peer) {
  RoceObservation seen;
  uint64_t transaction = 0;
  if (getrandom(&transaction, sizeof transaction, 0) < 0) seen.error = errno;
  while (seen.error == 0 && seen.asked < kTimes && !seen.has_answer) {
    const int64_t begun = now_ns();
    int error = send_question(sending_, peer, transaction);
    if (is_of_sender(error)) {  // what became of the one before
      read_errors(&seen);
      error = send_question(sending_, peer, transaction);
    }
    if (error == EMSGSIZE || (error != 0 && !is_of_sender(error))) seen.error = error;
    ++seen.asked;
    while (seen.error == 0 && !seen.has_answer) {
      const int64_t left = begun + kBetween - now_ns();
      if (left <= 0) break;
      pollfd watched[2] = {{receiving_.fd(), POLLIN, 0}, {sending_.fd(), 0, 0}};
      poll(watched, 2, static_cast<int>(left / 1'000'000) + 1);
      read_errors(&seen);
      for (Arrived arrived; !seen.has_answer && receive(&arrived);) {
        uint16_t identification = 0;
        if (!icrc_fits(arrived.from, receiving_.own(), arrived.datagram(), &identification)) {
          seen.damaged_from = arrived.from.address;
        } else if (is_answer(arrived.datagram(), transaction)) {
          seen.has_answer = arrived.from.address == peer;
          if (!seen.has_answer) seen.answers_from = arrived.from.address;
          seen.nanoseconds = now_ns() - begun;
          seen.identification = identification;
        }
      }
      // It was said at once; another answer may still be on its way, but not for long.
      if (seen.unreachable != Unreachable::kNot && seen.asked >= 2) return seen;
    }
  }
  return seen;
}

uint32_t RoceProbe::find_path_mtu(const NetAddress& peer, uint32_t bytes) {
  const uint32_t headers = (peer.is_ipv4() ? 20 : 40) + 8 + 12 + 8 + uint32_t{roce::kIcrcSize};
  std::array<uint8_t, 4096> payload{};
  packets::Datagram datagram = question(std::span(payload).first(std::min(bytes - headers, 4096u)));
  datagram.destination_qpn = kNobodysQpn;
  send_packet(sending_, peer, datagram);
  sockaddr_storage to;
  const socklen_t size = peer.to_socket_address(udp::kRocePort, &to);
  const int level = peer.is_ipv4() ? IPPROTO_IP : IPPROTO_IPV6;
  int mtu = 0;
  for (const int64_t until = now_ns() + kPatienceMtu;;) {
    const Descriptor route{socket(to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    socklen_t length = sizeof mtu;
    if (route.fd < 0 || connect(route.fd, reinterpret_cast<const sockaddr*>(&to), size) != 0 ||
        getsockopt(route.fd, level, peer.is_ipv4() ? IP_MTU : IPV6_MTU, &mtu, &length) != 0)
      return 0;
    if (static_cast<uint32_t>(mtu) < bytes || now_ns() >= until) break;
    pollfd watched{sending_.fd(), 0, 0};
    poll(&watched, 1, 50);
    RoceObservation ignored;
    read_errors(&ignored);
  }
  return static_cast<uint32_t>(mtu);
}

}  // namespace verbena::tool
