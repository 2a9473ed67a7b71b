// SPDX-License-Identifier: BSD-2-Clause
//
// What one recvmsg(2) or recvmmsg(2) has received: several datagrams, each of which may be packets of one
// sender that the kernel has put together (udp(7), UDP_GRO). RoceSocket::receive() takes the packets out one
// by one.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "udp/ip_fields.h"
#include "wire/net_address.h"

namespace verbena::udp {

// One end of a datagram's way.
struct UdpEnd {
  wire::NetAddress address;
  uint16_t port = 4791;
};

class ReceiveBatch {
 public:
  static constexpr size_t kDatagrams = 8, kDatagramBytes = 1 << 16;

  ReceiveBatch();  // throws std::bad_alloc
  ReceiveBatch(const ReceiveBatch&) = delete;
  ReceiveBatch& operator=(const ReceiveBatch&) = delete;

  // Are there packets that have not been taken out?
  bool is_empty() const { return next_ == count_; }
  // Is there likely more in the socket than it has received at once?
  bool may_go_on() const { return may_go_on_; }

 private:
  friend class RoceSocket;

  // Receives what is there. Only when empty. False: nothing.
  bool fill(int fd);
  // At most `wanted_` datagrams. How many.
  size_t receive(int fd);
  // The next packet; not when empty.
  struct Piece {
    const uint8_t* bytes;
    size_t size;
  };
  Piece next();
  // What the kernel says of a datagram of `size` bytes.
  void read_control(msghdr& header, size_t size);

  const std::unique_ptr<uint8_t[]> bytes_;
  std::array<mmsghdr, kDatagrams> messages_;
  std::array<iovec, kDatagrams> parts_;
  std::array<sockaddr_storage, kDatagrams> names_;
  struct alignas(cmsghdr) Control {
    char bytes[128];
  };
  std::array<Control, kDatagrams> control_;
  size_t count_ = 0, next_ = 0;  // datagrams
  // Of the next call. A single message is not delayed by a look for another one.
  size_t wanted_ = 1;
  bool may_go_on_ = false;
  size_t offset_ = 0;  // of the next packet in its datagram
  // Of the datagram, from its first packet on.
  size_t packet_size_ = 0;  // of all but the last packet
  IpFields ip_;
  UdpEnd from_;
};

}  // namespace verbena::udp
