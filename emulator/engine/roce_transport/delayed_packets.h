// SPDX-License-Identifier: BSD-2-Clause
//
// Packets that are late on purpose (faults/injection.h): each leaves with the first packet that is sent after
// its time. Any thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "udp/roce_socket.h"

namespace verbena {

class DelayedPackets {
 public:
  static constexpr size_t kMost = 64;

  struct Packet {
    wire::NetAddress to;
    udp::IpFields fields;
    uint32_t socket = 0;         // PacketSender::choose_socket()
    int64_t until = 0;           // ns, CLOCK_MONOTONIC
    std::vector<uint8_t> bytes;  // with the ICRC
  };

  // False: there are too many.
  bool keep(const wire::NetAddress& to, const udp::IpFields& fields, uint32_t socket,
            std::span<const uint8_t> bytes, int64_t until);
  // Those whose time has come, in the order of their times.
  std::vector<Packet> take_due(int64_t now);

 private:
  std::mutex mutex_;
  std::vector<Packet> packets_;
};

}  // namespace verbena
