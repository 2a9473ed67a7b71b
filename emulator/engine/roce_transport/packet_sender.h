// SPDX-License-Identifier: BSD-2-Clause
//
// Sends packets from one address of the node. Each process has sockets of its own for that, with a port of
// its own: receivers take packets from any source port (Annex A17 uses it for the choice of a path alone).
// Any thread. Nothing allocates and nothing waits.
#pragma once

#include <atomic>
#include <cstdint>

#include "roce/packet.h"
#include "udp/roce_socket.h"
#include "wire/net_address.h"

namespace verbena {

class PacketSender {
 public:
  // As RoceSocket::open().
  int open(const wire::NetAddress& address, std::string* problem);

  // False: the network takes nothing now, and the packet was not sent. Whatever else is wrong loses the
  // packet, as a wire does; the first time the log says why.
  bool send(const wire::NetAddress& to, const roce::Packet& packet);

  const wire::NetAddress& address() const { return socket_.own().address; }

 private:
  udp::RoceSocket socket_;
  std::atomic<uint32_t> refused_{0};
};

}  // namespace verbena
