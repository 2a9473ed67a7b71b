// SPDX-License-Identifier: BSD-2-Clause
//
// Datagrams (UD) as RoCE v2 packets.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "engine/datagram/datagram.h"
#include "engine/objects/network.h"
#include "roce/packet.h"
#include "udp/ip_fields.h"
#include "wire/net_address.h"

namespace verbena {

class PacketSender;

class RoceDatagrams {
 public:
  explicit RoceDatagrams(Process& process);

  // Network::send_datagram, to another node. `bytes` begin with the 40 bytes of the GRH. Any thread.
  void send(PacketSender& sender, const DatagramTo& to, const wire::DatagramHead& head, const uint8_t* bytes,
            uint32_t size);
  // Delivers a UD packet to the queue pair that it names, of whatever process of the node. One thread at a
  // time.
  void take(const roce::Packet& packet, const wire::NetAddress& from, const wire::NetAddress& to,
            const udp::IpFields& ip);

 private:
  Process& process_;
  std::atomic<uint32_t> psn_{0};  // nobody checks it
  std::atomic<int64_t> impatient_until_{0};  // ns: the network has taken nothing for some time
  std::unique_ptr<DatagramSender> source_;
  wire::NetAddress from_;
  uint8_t bytes_[kGrhBytes + kMaxDatagram];
};

}  // namespace verbena
