// SPDX-License-Identifier: BSD-2-Clause
//
// RoCE v2 packets over an ordinary UDP socket: the ICRC is made for each packet sent, and checked for each
// one received. Needs no privilege. RoCE v2 has no authentication: any machine can send what passes
// receive().
//
// The ICRC covers the IP header, so the kernel must build the one that is expected. An unconnected socket
// with path MTU discovery "do" sends IPv4 datagrams with identification 0 and DF, and fragments none.
//
// Traffic class, hop limit and flow label are given with each packet (ip_fields.h).
//
// The socket never blocks. send() may be called by several threads at once, receive() with a buffer each.
//
// Sources: ip(7), ipv6(7), udp(7); InfiniBand Architecture Specification vol. 1, annex A17.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>

#include "fabric/descriptor.h"
#include "roce/packet.h"
#include "udp/ip_fields.h"
#include "udp/receive_batch.h"
#include "wire/net_address.h"

namespace verbena::udp {

inline constexpr uint16_t kRocePort = 4791;

enum class Arrival : uint8_t {
  kPacket,
  kNothing,   // nothing has arrived
  kTooShort,  // dropped: less than a BTH and an ICRC
  kTooLong,   // dropped: more than the longest packet
  kDamaged,   // dropped: the ICRC does not fit; damaged, or its addresses were translated
};

// One more byte than the longest packet, to notice longer ones.
using PacketBuffer = std::array<uint8_t, roce::kMaxPacket + 1>;

class SendControl;

struct ReceivedPacket {
  UdpEnd from;
  std::span<const uint8_t> datagram;  // in the caller's buffer, with its ICRC: for roce::parse()
  IpFields ip;                        // into a batch only
};

class RoceSocket {
 public:
  // Binds to an address of this machine. Port kRocePort receives from peers and belongs to one socket per
  // address; 0: the kernel chooses a port. Returns 0 or an errno, with a line in `problem` (may be nullptr):
  // EINVAL: is_reachable() is false; EADDRNOTAVAIL: not of this machine; EADDRINUSE: another process, or the
  // kernel's rxe, has the port; and those of socket(2). The socket is closed first if it was open.
  int open(const wire::NetAddress& address, uint16_t port, std::string* problem);

  // Receives what is sent to port kRocePort of an IP group, by the interface that has the address `at`. Other
  // sockets of the machine may do the same. 0 or an errno, as open() and wire::join_ip_group(). own() is then
  // the group's.
  int open_group(const wire::NetAddress& group, const wire::NetAddress& at, std::string* problem);
  // The same by one more interface.
  int join_group(const wire::NetAddress& at);

  // Takes a socket that another process has opened so. EINVAL, and `fd` is closed: it is none, or bound to
  // something else.
  int adopt(int fd, const wire::NetAddress& address, uint16_t port);

  // Sends `datagram`: a packet from the BTH to the padding, and kIcrcSize bytes, which are written. Returns 0
  // or an errno: EAGAIN: the send buffer is full, wait for POLLOUT; EMSGSIZE: longer than the path MTU or the
  // longest packet; EINVAL: shorter than a BTH and an ICRC, or an address of the other IP version;
  // ENETUNREACH, EHOSTUNREACH and others of sendto(2).
  int send(const UdpEnd& to, const IpFields& fields, std::span<uint8_t> datagram) const;

  // Sends several packets to one destination by as few system calls as possible. Returns 0, or an errno as
  // above; *sent: how many of them have been sent; the error is that of the next one. Others may be sent
  // after it.
  int send(const UdpEnd& to, const IpFields& fields, std::span<const std::span<uint8_t>> datagrams,
           size_t* sent) const;

  // Takes one datagram. `out` is written for kPacket only.
  Arrival receive(PacketBuffer& buffer, ReceivedPacket* out) const;

  // From now on the kernel puts packets together that arrive at once, and tells the fields of their IP
  // header. They are received into batches only, by whatever process has the socket. `out` lies in the batch,
  // until it is empty.
  void receive_in_batches();
  Arrival receive(ReceiveBatch& batch, ReceivedPacket* out) const;

  const UdpEnd& own() const { return own_; }  // as bound
  int fd() const { return socket_.fd; }       // for poll(2); -1 when not open

 private:
  Arrival check(std::span<const uint8_t> datagram, const UdpEnd& from) const;
  bool is_refused(int error) const;
  int send_message(const UdpEnd& to, std::span<uint8_t> bytes, SendControl& control) const;
  int send_short_train(const UdpEnd& to, const IpFields& fields,
                       std::span<const std::span<uint8_t>> datagrams) const;
  size_t send_trains(const UdpEnd& to, const IpFields& fields, std::span<const std::span<uint8_t>> datagrams,
                     int* error) const;

  Descriptor socket_;
  UdpEnd own_;
  mutable std::atomic<bool> may_segment_{false};  // segmentation.h; false once the kernel has refused it
};

}  // namespace verbena::udp
