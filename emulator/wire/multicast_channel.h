// SPDX-License-Identifier: BSD-2-Clause
//
// Multicast between nodes: one IP multicast group per fabric and family, 239.192.<port> (RFC 2365:
// organisation-local) and ff18::766d:<port>, over UDP at the fabric's port.
// - Each process with members of an RDMA multicast group listens there and takes the messages for its groups.
// - A sender to any group sends there once, in each family that its node has an address of.
// - Every message is signed with the fabric's key and numbered, so that no message is taken twice. Like a
//   datagram, a message may be lost.
// - The reach is that of IP multicast with TTL 1: one subnet.
//
// Threads: listen() and send(): any thread; receive(): one thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "fabric/device_table.h"
#include "wire/net_address.h"
#include "wire/process_id.h"

namespace verbena {
class NodeMembership;
}

namespace verbena::wire {

inline constexpr size_t kMaxMulticastMessage = 8192;

class MulticastChannel {
 public:
  MulticastChannel() = default;
  ~MulticastChannel();
  MulticastChannel(const MulticastChannel&) = delete;
  MulticastChannel& operator=(const MulticastChannel&) = delete;

  // Determines where to listen and send; opens nothing yet. ENONET: no network; else as node_key().
  int open(NodeMembership& membership);

  // Starts to receive messages; the service thread watches the socket. 0, also when it listens already; or an
  // error of the kernel.
  int listen();
  bool listens() const { return listening_.load(std::memory_order_acquire); }

  // Sends from the interface that has `from`; for another address, and in the other family, from the first
  // one. At most kMaxMulticastMessage bytes.
  void send(const NetAddress& from, std::span<const uint8_t> message);

  // Takes the next message of another node's process. Returns its size; 0: there is none now.
  size_t receive(std::array<uint8_t, kMaxMulticastMessage>* message);

 private:
  struct Sender {
    NetAddress address;
    int fd = -1;
  };
  struct Known {
    uint64_t last = 0;  // the highest number
    uint64_t seen = 0;  // bit n: last - n
  };
  bool is_new(const ProcessId& sender, uint64_t number);
  int listen_to(bool ipv4);
  Sender* sender_of(bool ipv4, const NetAddress& from);
  size_t receive_from(int fd, std::array<uint8_t, kMaxMulticastMessage>* message);

  NodeMembership* membership_ = nullptr;
  ProcessId self_;
  NetworkKey key_{};
  uint16_t port_ = 0;
  std::mutex mutex_;  // of what follows up to `known_`
  std::vector<Sender> senders_;
  uint64_t next_number_ = 1;
  std::array<int, 2> fds_{-1, -1};  // that listen: IPv4, IPv6
  std::atomic<bool> listening_{false};
  std::map<ProcessId, Known> known_;
};

}  // namespace verbena::wire
