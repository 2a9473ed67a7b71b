// SPDX-License-Identifier: BSD-2-Clause
#include "udp/roce_socket.h"

#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "fabric/problem.h"
#include "roce/icrc.h"
#include "udp/segmentation.h"
#include "udp/send_control.h"
#include "wire/ip_group.h"

namespace verbena::udp {
namespace {

using roce::Ipv4Flow;
using roce::Ipv6Flow;
using wire::NetAddress;

constexpr size_t kShortest = 12 + roce::kIcrcSize;  // a BTH and the ICRC

// The default holds about 90 packets of 1 KiB. The kernel takes less if net.core.rmem_max is less, unless the
// process has CAP_NET_ADMIN (socket(7)).
constexpr int kReceiveBuffer = 4 << 20;

// The hop limit of groups (the kernel's cma.c, cma_iboe_join_multicast(): IPV6_DEFAULT_HOPLIMIT).
constexpr int kGroupHops = 64;

Ipv4Flow ipv4_flow(const UdpEnd& from, const UdpEnd& to) {
  Ipv4Flow flow{};
  std::copy_n(&from.address.bytes[12], 4, flow.source);
  std::copy_n(&to.address.bytes[12], 4, flow.destination);
  flow.source_port = from.port;
  flow.destination_port = to.port;
  return flow;
}

Ipv6Flow ipv6_flow(const UdpEnd& from, const UdpEnd& to) {
  Ipv6Flow flow{};
  std::copy_n(from.address.bytes.begin(), 16, flow.source);
  std::copy_n(to.address.bytes.begin(), 16, flow.destination);
  flow.source_port = from.port;
  flow.destination_port = to.port;
  return flow;
}

// Of packets between two ends.
class IcrcBetween {
 public:
  IcrcBetween(const UdpEnd& from, const UdpEnd& to)
      : is_ipv4_(from.address.is_ipv4()),
        ipv4_(is_ipv4_ ? ipv4_flow(from, to) : Ipv4Flow{}),
        ipv6_(is_ipv4_ ? Ipv6Flow{} : ipv6_flow(from, to)) {}

  uint32_t of(std::span<const uint8_t> packet, uint16_t identification = 0) {
    ipv4_.identification = identification;
    return is_ipv4_ ? roce::icrc(ipv4_, packet) : roce::icrc(ipv6_, packet);
  }

  // Others than 0 come from rxe, and from senders whose kernel divides datagrams. A UDP socket does not see
  // them.
  bool fits(std::span<const uint8_t> packet, uint32_t found) {
    const uint32_t made = of(packet);
    uint16_t identification;
    return made == found ||
           (is_ipv4_ && roce::find_identification(packet.size(), made, found, &identification));
  }

  // Into the last bytes of `datagram`.
  void put(std::span<uint8_t> datagram, uint16_t identification = 0) {
    const auto packet = datagram.first(datagram.size() - roce::kIcrcSize);
    roce::put_icrc(packet.data() + packet.size(), of(packet, identification));
  }

 private:
  const bool is_ipv4_;
  Ipv4Flow ipv4_;
  Ipv6Flow ipv6_;
};

// Packets that leave as one datagram: all of the same size, but the last one may be shorter (udp(7)). How
// many of `datagrams`, from the first on; 1: it leaves by itself.
constexpr size_t kMostTogether = 64, kMostBytesTogether = 65'000;  // UDP_MAX_SEGMENTS; the length field of IP
size_t count_together(std::span<const std::span<uint8_t>> datagrams) {
  const size_t size = datagrams[0].size();
  size_t count = 1, bytes = size;
  while (count < std::min(datagrams.size(), kMostTogether) && datagrams[count - 1].size() == size &&
         datagrams[count].size() <= size && bytes + datagrams[count].size() <= kMostBytesTogether)
    bytes += datagrams[count++].size();
  return count;
}

// Are they so short that to copy them costs less than to name each to the kernel?
constexpr size_t kShortTrain = 512;
bool is_short_train(std::span<const std::span<uint8_t>> datagrams) {
  constexpr size_t kMost = 8;
  if (datagrams.size() > kMost || datagrams.back().size() < kShortest) return false;
  size_t bytes = 0;
  for (const std::span<uint8_t>& each : datagrams) bytes += each.size();
  return bytes <= kShortTrain && count_together(datagrams) == datagrams.size();
}

bool set_option(int fd, int level, int option, int value) {
  return setsockopt(fd, level, option, &value, sizeof value) == 0;
}

// The traffic class of most packets: it needs no control message.
constexpr uint8_t kUsualClass = kEcnCapable;

void set_receive_buffer(int fd) {
  if (!set_option(fd, SOL_SOCKET, SO_RCVBUFFORCE, kReceiveBuffer))
    set_option(fd, SOL_SOCKET, SO_RCVBUF, kReceiveBuffer);
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
  set_receive_buffer(opened.fd);
  if (address.is_ipv4())
    set_option(opened.fd, IPPROTO_IP, IP_TOS, kUsualClass);
  else
    set_option(opened.fd, IPPROTO_IPV6, IPV6_TCLASS, kUsualClass);
  if (bind(opened.fd, reinterpret_cast<const sockaddr*>(&at), length) != 0) {
    const int error = errno;
    if (error == EADDRINUSE)
      return fail(error, problem, what + ": another process, or the kernel's rxe, has this UDP port");
    if (error == EADDRNOTAVAIL)
      return fail(error, problem, what + ": not an address of this machine (ip address shows them)");
    return fail_errno(error, problem, what);
  }
  length = sizeof at;
  if (getsockname(opened.fd, reinterpret_cast<sockaddr*>(&at), &length) != 0) {
    return fail_errno(errno, problem, what);
  }
  own_ = {address, port_of(at)};
  wire::send_to_ip_groups_from(opened.fd, address, kGroupHops);  // fails where there is no multicast at all
  socket_.reset(opened.release());
  may_segment_.store(may_segment(socket_.fd, address), std::memory_order_relaxed);
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
  set_receive_buffer(opened.fd);
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

int RoceSocket::send(const UdpEnd& to, const IpFields& fields, std::span<uint8_t> datagram) const {
  if (datagram.size() > roce::kMaxPacket) return EMSGSIZE;
  if (datagram.size() < kShortest || to.address.is_ipv4() != own_.address.is_ipv4()) return EINVAL;

  IcrcBetween(own_, to).put(datagram);
  SendControl control;
  control.add(fields, kUsualClass, own_.address.is_ipv4());
  return send_message(to, datagram, control);
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

  UdpEnd from;
  NetAddress::from_socket_address(at, &from.address);
  from.port = port_of(at);
  *out = {from, std::span<const uint8_t>(buffer).first(static_cast<size_t>(received)), {}};
  return check(out->datagram, from);
}

Arrival RoceSocket::check(std::span<const uint8_t> datagram, const UdpEnd& from) const {
  if (datagram.size() < kShortest) return Arrival::kTooShort;
  if (datagram.size() > roce::kMaxPacket) return Arrival::kTooLong;
  const auto packet = datagram.first(datagram.size() - roce::kIcrcSize);
  const uint32_t found = roce::get_icrc(packet.data() + packet.size());
  return IcrcBetween(from, own_).fits(packet, found) ? Arrival::kPacket : Arrival::kDamaged;
}

// ---- several packets at once ----

int RoceSocket::send(const UdpEnd& to, const IpFields& fields, std::span<const std::span<uint8_t>> datagrams,
                     size_t* sent) const {
  *sent = 0;
  if (datagrams.size() == 1) {
    const int error = send(to, fields, datagrams[0]);
    if (error == 0) *sent = 1;
    return error;
  }
  if (to.address.is_ipv4() != own_.address.is_ipv4()) return EINVAL;
  if (may_segment_.load(std::memory_order_relaxed) && is_short_train(datagrams)) {
    const int error = send_short_train(to, fields, datagrams);
    if (error == 0) *sent = datagrams.size();
    if (error == 0 || !is_refused(error)) return error;
  }
  while (*sent < datagrams.size()) {
    if (datagrams[*sent].size() < kShortest) return EINVAL;
    if (datagrams[*sent].size() > roce::kMaxPacket) return EMSGSIZE;
    int error = 0;
    *sent += send_trains(to, fields, datagrams.subspan(*sent), &error);
    if (error != 0) return error;
  }
  return 0;
}

// The kernel cannot divide datagrams on this way, or says what is wrong with each. False: the error is
// another one.
bool RoceSocket::is_refused(int error) const {
  if (error == EAGAIN || error == ENOBUFS) return false;
  may_segment_.store(false, std::memory_order_relaxed);
  return true;
}

// A few short packets that may leave as one datagram: a request and an acknowledgement. An errno.
int RoceSocket::send_short_train(const UdpEnd& to, const IpFields& fields,
                                 std::span<const std::span<uint8_t>> datagrams) const {
  std::array<uint8_t, kShortTrain> bytes;
  size_t size = 0;
  IcrcBetween icrc(own_, to);
  for (size_t i = 0; i < datagrams.size(); ++i) {
    icrc.put(datagrams[i], static_cast<uint16_t>(i));
    std::memcpy(&bytes[size], datagrams[i].data(), datagrams[i].size());
    size += datagrams[i].size();
  }
  SendControl control;
  control.add(fields, kUsualClass, own_.address.is_ipv4());
  control.add_segment_size(static_cast<uint16_t>(datagrams[0].size()));
  return send_message(to, {bytes.data(), size}, control);
}

int RoceSocket::send_message(const UdpEnd& to, std::span<uint8_t> bytes, SendControl& control) const {
  sockaddr_storage at;
  iovec part{bytes.data(), bytes.size()};
  msghdr header{};
  header.msg_name = &at;
  header.msg_namelen = to.address.to_socket_address(to.port, &at);
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  control.put(&header);
  ssize_t sent;
  do {
    sent = syscall(SYS_sendmsg, socket_.fd, &header, 0);
  } while (sent < 0 && errno == EINTR);
  return sent < 0 ? errno : 0;
}

// How many have been sent. With an error: of the next one.
size_t RoceSocket::send_trains(const UdpEnd& to, const IpFields& fields,
                               std::span<const std::span<uint8_t>> datagrams, int* error) const {
  constexpr size_t kMost = 64;
  sockaddr_storage at;
  const socklen_t length = to.address.to_socket_address(to.port, &at);
  iovec parts[kMost];
  mmsghdr messages[kMost];
  SendControl control[kMost];
  size_t counts[kMost];
  IcrcBetween icrc(own_, to);
  const bool together = may_segment_.load(std::memory_order_relaxed);
  size_t done = 0, trains = 0;
  for (; done < std::min(datagrams.size(), kMost); ++trains) {
    const auto rest = datagrams.subspan(done, std::min(datagrams.size(), kMost) - done);
    if (rest[0].size() < kShortest || rest[0].size() > roce::kMaxPacket) break;
    size_t count = together ? count_together(rest) : 1;
    while (rest[count - 1].size() < kShortest) --count;
    messages[trains] = {};
    msghdr& header = messages[trains].msg_hdr;
    header.msg_name = &at;
    header.msg_namelen = length;
    header.msg_iov = &parts[done];
    header.msg_iovlen = count;
    for (size_t i = 0; i < count; ++i) {
      icrc.put(rest[i], static_cast<uint16_t>(i));
      parts[done + i] = {rest[i].data(), rest[i].size()};
    }
    control[trains].add(fields, kUsualClass, own_.address.is_ipv4());
    if (count > 1) control[trains].add_segment_size(static_cast<uint16_t>(rest[0].size()));
    control[trains].put(&header);
    counts[trains] = count;
    done += count;
  }
  long left;
  do {
    left = syscall(SYS_sendmmsg, socket_.fd, messages, trains, 0);
  } while (left < 0 && errno == EINTR);
  size_t sent = 0;
  for (long i = 0; i < left; ++i) sent += counts[i];
  if (left >= 0) return sent;
  *error = errno;
  if (counts[0] != 1 && is_refused(*error)) *error = 0;
  return 0;
}

void RoceSocket::receive_in_batches() {
  set_option(socket_.fd, IPPROTO_UDP, UDP_GRO, 1);
  if (own_.address.is_ipv4()) {
    set_option(socket_.fd, IPPROTO_IP, IP_RECVTOS, 1);
    set_option(socket_.fd, IPPROTO_IP, IP_RECVTTL, 1);
  } else {
    set_option(socket_.fd, IPPROTO_IPV6, kIpv6Flowinfo, 1);
    set_option(socket_.fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
  }
}

Arrival RoceSocket::receive(ReceiveBatch& batch, ReceivedPacket* out) const {
  if (batch.is_empty() && !batch.fill(socket_.fd)) return Arrival::kNothing;
  const ReceiveBatch::Piece piece = batch.next();
  *out = {batch.from_, {piece.bytes, piece.size}, batch.ip_};
  return check(out->datagram, out->from);
}

}  // namespace verbena::udp
