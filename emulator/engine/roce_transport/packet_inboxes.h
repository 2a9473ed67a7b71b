// SPDX-License-Identifier: BSD-2-Clause
//
// The connections over which other processes of the node pass on packets that they have read for this one.
// Packets are taken in the order in which they were read (ForwardedPacket::read_at), whatever process has
// read them. A UC queue pair would lose the message of one that is taken too late.
//
// One process reads at a time. So when a packet is found in one inbox, those that were read before are in
// their inboxes: each one that was empty is looked at again before the packet is taken.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/roce_transport/port_sharing.h"
#include "fabric/message_socket.h"

namespace verbena {

class PacketInboxes {
 public:
  using Take = std::function<void(const ForwardedPacket& way, std::span<const uint8_t> datagram)>;

  void add(MessageSocket connection) { inboxes_.push_back({std::move(connection)}); }

  // Takes what is there, but not more than `most` packets. False: there may be more. A connection that has
  // ended, or brings something else, is closed.
  bool read(int most, const Take& take);

 private:
  struct Inbox {
    MessageSocket connection;
    bool has_packet = false;
    int64_t read_at = 0;     // of that packet, which is still in the socket
    uint64_t looked_at = 0;  // packets that were found so far when it was empty; 0: not looked at
  };

  enum class Taken : uint8_t {
    kPacket,
    kNothing,
    kEnd,  // the connection has ended, or brings something else
  };
  bool look(Inbox& inbox);
  void look_at_all();
  Taken take_from(Inbox& inbox, const Take& take);
  bool read_only_inbox(int most, const Take& take);

  std::vector<Inbox> inboxes_;
  uint64_t found_ = 1;
};

}  // namespace verbena
