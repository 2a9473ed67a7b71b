// SPDX-License-Identifier: BSD-2-Clause
//
// What comes in packets: finds the queue pair, and hands the packet to its path, or to the datagrams. Under
// the lock of the receiver (roce_progress.h).
//
// RoCE v2 has no authentication. A packet reaches a path if its destination QPN, source address and P_Key are
// those of the connection; the rest is for the machines and the responder to check.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/packets/answer_limit.h"
#include "engine/roce_transport/roce_datagrams.h"
#include "engine/roce_transport/roce_path.h"

namespace verbena {

class RoceReceiver {
 public:
  explicit RoceReceiver(Process& process);

  void add_route(uint32_t qpn, std::shared_ptr<RocePath> path);
  void remove_route(uint32_t qpn);
  std::shared_ptr<RocePath> find(uint32_t qpn) const;  // nullptr: none
  bool has_routes() const { return !routes_.empty(); }

  RoceDatagrams& datagrams() { return datagrams_; }

  // Takes a packet from `from` to `to`, an address of this node. `datagram` has its ICRC, which was checked.
  // false: *qpn, its queue pair, is none of this process, or QP 1. `ip`: as it has come.
  bool take(std::span<const uint8_t> datagram, const wire::NetAddress& from, const wire::NetAddress& to,
            const udp::IpFields& ip, int64_t now, uint32_t* qpn);

  // Sends what responses have made room for. Returns when a path is to be called for, ns; kEndOfTime.
  int64_t send_requests(int64_t now);

  // The same for a packet to a group.
  void take_from_group(std::span<const uint8_t> datagram, const wire::NetAddress& from,
                       const wire::NetAddress& group, const udp::IpFields& ip);

  // Sends answers that are due, some of each path. Returns how many paths have more.
  size_t send_answers(int64_t now);
  // Is a NAK among them? It should not wait until more packets are taken.
  bool must_answer() const { return must_answer_; }
  // Is an answer due that has not left meanwhile, with a request?
  bool is_answer_due() const;
  // How many queue pairs have answers that are due; 0 as well if one of them is more than an acknowledgement.
  size_t acknowledging() const;

 private:
  bool is_for(const RocePath& path, const roce::Packet& packet, const wire::NetAddress& from,
              const wire::NetAddress& to) const;

  Process& process_;
  packets::AnswerLimit naks_;
  std::unordered_map<uint32_t, std::shared_ptr<RocePath>> routes_;  // by own QPN
  std::vector<std::shared_ptr<RocePath>> answering_, requesting_;
  bool must_answer_ = false;
  RoceDatagrams datagrams_;
};

}  // namespace verbena
