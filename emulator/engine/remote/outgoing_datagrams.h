// SPDX-License-Identifier: BSD-2-Clause
//
// Datagrams to other processes. A datagram whose destination is not known yet, or not connected, waits here:
// for 2 s at most, and within bounds of memory, since UD does not send it again. Then it is lost, and counted
// (SharedQp::lost).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "engine/objects/network.h"
#include "engine/remote/qp_locations.h"

namespace verbena {

class Process;

class OutgoingDatagrams {
 public:
  OutgoingDatagrams(Process& process, const QpLocations& locations)
      : process_(process), locations_(locations) {}

  // ---- any thread ----

  // Network::send_datagram
  void send(const DatagramTo& to, const wire::DatagramHead& head, const uint8_t* bytes, uint32_t size);
  // Network::is_full
  bool is_full(const wire::NetAddress& to, uint32_t qpn);
  bool has_waiting() const { return waits_.load(std::memory_order_acquire); }
  bool waits_for(const wire::NetAddress& to, uint32_t qpn);

  // ---- under the progress lock ----

  // Sends those that can be sent by now, and drops those whose time is over. Returns the destinations that
  // have to be looked for: each at once, and then every 20 ms.
  std::vector<DatagramTo> send_waiting(int64_t now);
  // A connection to that node is there: send_waiting() returns its destinations the next time.
  void look_again_for(const wire::NetAddress& node);
  // Takes out those that wait for processes of this node: their frames in order, by queue pair.
  std::map<uint32_t, std::vector<std::byte>> take_within_node();
  // The node has no such queue pair: its datagrams are lost now.
  void drop(const wire::NetAddress& to, uint32_t qpn);

 private:
  struct WaitingDatagram {
    DatagramTo to;
    int64_t until;          // ns: then it is lost
    int64_t look_again_at;  // ns
    std::vector<std::byte> frame;
  };
  enum class Fate : uint8_t { kWaits, kLeaves };

  Fate send_or_wait(WaitingDatagram& datagram, int64_t now, std::vector<DatagramTo>& wanted,
                    std::vector<const RemotePeer*>& full);
  bool is_over_share(const wire::NetAddress& to, uint32_t qpn) const;

  Process& process_;
  const QpLocations& locations_;
  std::mutex mutex_;  // before RemotePeer::out_mutex
  std::vector<WaitingDatagram> waiting_;
  size_t waiting_bytes_ = 0;
  std::atomic<bool> waits_{false};
};

}  // namespace verbena
