// SPDX-License-Identifier: BSD-2-Clause
#include "udp/roce_socket.h"

#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "fabric/problem.h"
#include "roce/icrc.h"
#include "wire/ip_group.h"

namespace verbena::udp {
namespace {

using wire::NetAddress;

constexpr size_t kShortest = 12 + roce::kIcrcSize;  // a BTH and the ICRC

// The default holds about 90 packets of 1 KiB. The kernel takes less if net.core.rmem_max is less.
constexpr int kReceiveBuffer = 4 << 20;

// The hop limit of groups (the kernel's cma.c, cma_iboe_join_multicast(): IPV6_DEFAULT_HOPLIMIT).
constexpr int kGroupHops = 64;

roce::Ipv4Flow ipv4_flow(const UdpEnd& from, const UdpEnd& to) {
  roce::Ipv4Flow flow{};
  std::copy_n(&from.address.bytes[12], 4, flow.source);
  std::copy_n(&to.address.bytes[12], 4, flow.destination);
  flow.source_port = from.port;
  flow.destination_port = to.port;
  return flow;
}

roce::Ipv6Flow ipv6_flow(const UdpEnd& from, const UdpEnd& to) {
  roce::Ipv6Flow flow{};
  std::copy_n(from.address.bytes.begin(), 16, flow.source);
  std::copy_n(to.address.bytes.begin(), 16, flow.destination);
  flow.source_port = from.port;
  flow.destination_port = to.port;
  return flow;
}

uint32_t icrc_between(const UdpEnd& from, const UdpEnd& to, std::span<const uint8_t> packet) {
  return from.address.is_ipv4() ? roce::icrc(ipv4_flow(from, to), packet)
                                : roce::icrc(ipv6_flow(from, to), packet);
}

// rxe sends identifications other than 0, which a UDP socket does not see.
bool icrc_fits(const UdpEnd& from, const UdpEnd& to, std::span<const uint8_t> packet, uint32_t found) {
  if (icrc_between(from, to, packet) == found) return true;
  uint16_t identification;
  return from.address.is_ipv4() &&
         roce::find_identification(ipv4_flow(from, to), packet, found, &identification);
}

bool set_option(int fd, int level, int option, int value) {
  return setsockopt(fd, level, option, &value, sizeof value) == 0;
}

// Without these the ICRC would not fit, or packets of rxe, which have no UDP checksum, would not arrive.
bool set_ip_options(int fd, bool is_ipv4) {
  if (is_ipv4) return set_option(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
  return set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1) &&
         set_option(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO) &&
         set_option(fd, IPPROTO_UDP, UDP_NO_CHECK6_RX, 1);
}

uint16_t port_of(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET ? reinterpret_cast<const sockaddr_in&>(address).sin_port
                                            : reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
}

}  // namespace

int RoceSocket::open(const NetAddress& address, uint16_t port, std::string* problem) {
  socket_.reset();
  const std::string what = "RoCE v2 at " + address.text(port);
  if (!address.is_reachable()) return fail(EINVAL, problem, what + ": not an address that peers can reach");

  sockaddr_storage at;
  socklen_t length = address.to_socket_address(port, &at);
  Descriptor opened(socket(at.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_UDP));
  if (opened.fd < 0 || !set_ip_options(opened.fd, address.is_ipv4())) return fail_errno(errno, problem, what);
  set_option(opened.fd, SOL_SOCKET, SO_RCVBUF, kReceiveBuffer);
  if (bind(opened.fd, reinterpret_cast<const sockaddr*>(&at), length) != 0) {
    const int error = errno;
    if (error != EADDRINUSE) return fail_errno(error, problem, what);
    return fail(error, problem, what + ": another process, or the kernel's rxe, has this UDP port");
  }
  length = sizeof at;
  if (getsockname(opened.fd, reinterpret_cast<sockaddr*>(&at), &length) != 0) {
    return fail_errno(errno, problem, what);
  }
  own_ = {address, port_of(at)};
  wire::send_to_ip_groups_from(opened.fd, address, kGroupHops);  // fails where there is no multicast at all
  socket_.reset(opened.release());
  return 0;
}

int RoceSocket::open_group(const NetAddress& group, const NetAddress& at, std::string* problem) {
  socket_.reset();
  const std::string what = "RoCE v2 to " + group.text(kRocePort);
  const bool is_ipv4 = group.is_ipv4();
  sockaddr_storage where;
  const socklen_t length = group.to_socket_address(kRocePort, &where);
  Descriptor opened(socket(where.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_UDP));
  // Not what other sockets have joined; and a socket may be bound there beside others.
  if (opened.fd < 0 || !set_ip_options(opened.fd, is_ipv4) ||
      !set_option(opened.fd, SOL_SOCKET, SO_REUSEADDR, 1) ||
      !set_option(opened.fd, is_ipv4 ? IPPROTO_IP : IPPROTO_IPV6,
                  is_ipv4 ? IP_MULTICAST_ALL : IPV6_MULTICAST_ALL, 0) ||
      bind(opened.fd, reinterpret_cast<const sockaddr*>(&where), length) != 0)
    return fail_errno(errno, problem, what);
  if (const int error = wire::join_ip_group(opened.fd, at, group); error != 0)
    return fail_errno(error, problem, what);
  set_option(opened.fd, SOL_SOCKET, SO_RCVBUF, kReceiveBuffer);
  own_ = {group, kRocePort};
  socket_.reset(opened.release());
  return 0;
}

int RoceSocket::join_group(const NetAddress& at) {
  const int error = wire::join_ip_group(socket_.fd, at, own_.address);
  return error == EADDRINUSE ? 0 : error;  // two addresses of one interface
}

int RoceSocket::adopt(int fd, const NetAddress& address, uint16_t port) {
  Descriptor given(fd);
  sockaddr_storage at{};
  socklen_t length = sizeof at;
  int kind = 0;
  socklen_t size = sizeof kind;
  NetAddress bound;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&at), &length) != 0 ||
      getsockopt(fd, SOL_SOCKET, SO_TYPE, &kind, &size) != 0 || kind != SOCK_DGRAM ||
      !NetAddress::from_socket_address(at, &bound) || bound != address || port_of(at) != port)
    return EINVAL;
  own_ = {address, port};
  socket_.reset(given.release());
  return 0;
}

int RoceSocket::send(const UdpEnd& to, std::span<uint8_t> datagram) const {
  if (datagram.size() > roce::kMaxPacket) return EMSGSIZE;
  if (datagram.size() < kShortest || to.address.is_ipv4() != own_.address.is_ipv4()) return EINVAL;

  const auto packet = datagram.first(datagram.size() - roce::kIcrcSize);
  roce::put_icrc(packet.data() + packet.size(), icrc_between(own_, to, packet));

  sockaddr_storage at;
  const socklen_t length = to.address.to_socket_address(to.port, &at);
  ssize_t sent;
  do {
    sent = syscall(SYS_sendto, socket_.fd, datagram.data(), datagram.size(), 0, &at, length);
  } while (sent < 0 && errno == EINTR);
  return sent < 0 ? errno : 0;
}

Arrival RoceSocket::receive(PacketBuffer& buffer, ReceivedPacket* out) const {
  sockaddr_storage at{};
  socklen_t length;
  ssize_t received;
  do {
    length = sizeof at;
    received = syscall(SYS_recvfrom, socket_.fd, buffer.data(), buffer.size(), 0, &at, &length);
  } while (received < 0 && errno == EINTR);
  if (received < 0) return Arrival::kNothing;

  const auto size = static_cast<size_t>(received);
  if (size < kShortest) return Arrival::kTooShort;
  if (size > roce::kMaxPacket) return Arrival::kTooLong;

  UdpEnd from;
  NetAddress::from_socket_address(at, &from.address);
  from.port = port_of(at);
  const auto datagram = std::span<const uint8_t>(buffer).first(size);
  const auto packet = datagram.first(size - roce::kIcrcSize);
  if (!icrc_fits(from, own_, packet, roce::get_icrc(packet.data() + packet.size()))) return Arrival::kDamaged;
  *out = {from, datagram};
  return Arrival::kPacket;
}

}  // namespace verbena::udp
