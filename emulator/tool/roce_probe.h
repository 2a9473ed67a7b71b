// SPDX-License-Identifier: BSD-2-Clause
//
// What the network does with RoCE v2 packets to a peer and back: a probe from two ordinary UDP sockets.
//
// The probe asks the peer's connection manager for a service that nobody has (SIDR_REQ, a MAD to QP 1). Every
// end refuses that without keeping any state: rxe, adapters, and nodes of Verbena (vol. 1, 12.11; the
// kernel's drivers/infiniband/core/cm.c, cm_sidr_req_handler()).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "udp/roce_socket.h"
#include "wire/net_address.h"

namespace verbena::tool {

// What an ICMP message, or this machine's own IP, said of a packet of ours (ip(7), IP_RECVERR).
enum class Unreachable : uint8_t {
  kNot,
  kPort,      // the host has nobody at the port
  kHost,      // nobody has the address, or no route leads there
  kFiltered,  // a firewall on the way refuses
  kOther,
};

struct RoceObservation {
  int error = 0;                                 // of sending, an errno: nothing could be sent
  uint32_t asked = 0;                            // how often until there was an answer, or none came
  bool has_answer = false;                       // from the peer's address
  int64_t nanoseconds = 0;                       // from the last request to the answer
  uint16_t identification = 0;                   // of the answer (IPv4), as its ICRC says
  std::optional<wire::NetAddress> answers_from;  // an answer came from this address instead
  std::optional<wire::NetAddress> damaged_from;  // a packet came from there whose ICRC does not fit
  Unreachable unreachable = Unreachable::kNot;
  std::optional<wire::NetAddress> said_by;  // who said that
  uint32_t path_mtu = 0;  // bytes of IP that the way takes, as far as this machine knows; 0: it does not
};

class RoceProbe {
 public:
  // Binds to `own`, as a node does. 0 or an errno, as udp::RoceSocket::open().
  int open(const wire::NetAddress& own, std::string* problem);

  // The IPv4 identification that a packet to `peer` has left with; nothing if the kernel does not show it.
  // Anything but 0 makes the ICRC wrong. IPv6 has none: 0.
  std::optional<uint16_t> sent_identification(const wire::NetAddress& peer);

  // Asks several times, for 5 s at most.
  RoceObservation ask(const wire::NetAddress& peer);

  // Sends one packet of `bytes` bytes of IP to a queue pair that nobody has, and waits a moment for a router
  // that says it is too long. Returns what the way takes, as RoceObservation::path_mtu.
  uint32_t find_path_mtu(const wire::NetAddress& peer, uint32_t bytes);

 private:
  struct Arrived;
  bool receive(Arrived* out);
  void read_errors(RoceObservation* seen);

  udp::RoceSocket receiving_, sending_;
};

}  // namespace verbena::tool
