// SPDX-License-Identifier: BSD-2-Clause
//
// The processes of a node share one socket per address, since UDP port 4791 has one owner there. The process
// that comes first opens it. The others ask any living one for its descriptor; so the socket lives as long as
// any of them. A process that reads a packet of another one's queue pair passes it on over a connection to
// that process's socket (fabric/service_socket.h): what it has passed on outlives it, and a process that is
// stopped, or slow, loses its own packets only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>

#include "engine/objects/process.h"
#include "fabric/message_socket.h"
#include "udp/roce_socket.h"
#include "wire/net_address.h"

namespace verbena {

// The first message to another process's service ServiceNumber::kPackets.
struct PacketsCall {
  enum class Kind : uint32_t {
    kSocket = 1,   // wants the socket of address `index`; it comes with the reply, which is the same message
    kForward = 2,  // packets follow, a message each: ForwardedPacket and the datagram. The reply,
                   // kInboxTaken, comes when the process looks there before it reads sockets
  };
  Kind kind;
  uint32_t index;
};

struct ForwardedPacket {
  wire::NetAddress from, to;
  udp::IpFields ip;
  // now_ns() of the process that has read the packet, while it had the right to read (reading_lease.h): later
  // packets have a later time, whatever process has read them.
  int64_t read_at = 0;
};
inline constexpr size_t kForwardedBytes = sizeof(ForwardedPacket) + roce::kMaxPacket;

inline constexpr uint8_t kInboxTaken = 1;

// The node's socket at its address number `index`, which other processes may have. 0 or an errno, as
// RoceSocket::open().
int open_shared_port(const NodeMembership& membership, uint32_t index, const wire::NetAddress& address,
                     udp::RoceSocket* out, std::string* problem);

// Passes packets on. Under the lock of the receiver. The first packet to a process waits until that process
// has taken the connection, kTakePatience at most: until then it might read what comes later from the
// sockets. Packets that do not go are lost, and counted (PacketDrop::kNotPassedOn).
class PacketForwarder {
 public:
  explicit PacketForwarder(Process& process) : process_(process) {}

  static constexpr int kTakePatience = 20;  // ms; within ReadingLease::kLength

  // To the process that has queue pair `qpn`. What does not go is lost. False: none has it.
  bool forward(uint32_t qpn, const ForwardedPacket& way, std::span<const uint8_t> datagram);
  // To the process in a slot; not to this one.
  void forward_to(uint32_t slot, const ForwardedPacket& way, std::span<const uint8_t> datagram);
  void forward_to_all(const ForwardedPacket& way, std::span<const uint8_t> datagram);

 private:
  struct Neighbour {
    uint32_t generation = 0;
    int64_t call_again_at = 0;
    bool is_new = true;  // has not taken the connection
    MessageSocket connection;
  };
  Neighbour* reach(uint32_t slot);  // nullptr: not now
  static void let_take(Neighbour& neighbour);
  void pass_on(Neighbour* neighbour, const ForwardedPacket& way, std::span<const uint8_t> datagram);

  Process& process_;
  std::unordered_map<uint32_t, Neighbour> neighbours_;  // by slot
};

}  // namespace verbena
