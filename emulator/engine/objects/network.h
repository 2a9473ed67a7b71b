// SPDX-License-Identifier: BSD-2-Clause
//
// What the engine asks of the part that reaches processes by frames (engine/remote): processes of other nodes, and those of
// this node whose memory cannot be reached (PeerAdapter::is_within_reach). Any thread, unless a function says otherwise.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>

#include "wire/frame.h"
#include "wire/net_address.h"

namespace verbena {

class PeerAdapter;
class Transport;
struct Qp;

// Where processes are that have no address to each other, as they are of one node.
inline constexpr wire::NetAddress kThisNode{};

// A datagram's destination.
struct DatagramTo {
  wire::NetAddress address;
  wire::NetAddress from;
  uint32_t qpn;
  bool to_group = false;  // to all members that the process with that queue pair has
};

class Network {
 public:
  // ---- connections of queue pairs ----

  // The path to where `attr` leads; nullptr: that is on this node, or nowhere.
  virtual std::shared_ptr<Transport> path_to(const Qp& qp, const ibv_qp_attr& attr) = 0;
  // The same to queue pair `qpn` of a process of this node.
  virtual std::shared_ptr<Transport> path_within(const PeerAdapter& to, uint32_t qpn) = 0;
  // The queue pair has the path now, and may be connected to. Its peer is looked for. No lock is held.
  virtual void connect(Qp& qp, const std::shared_ptr<Transport>& path) = 0;
  // On return nothing here touches the queue pair any more. No lock is held.
  virtual void forget(Qp& qp) = 0;

  // ---- datagrams ----

  // Are other nodes to be reached?
  virtual bool leads_out() const = 0;
  // Does the address belong to this node?
  virtual bool is_own(const ibv_ah_attr& address) const = 0;
  // Is the path there full? Then a message waits in the send queue, as it would for a slow link.
  virtual bool is_full(const wire::NetAddress& to, uint32_t qpn) = 0;
  // Sends one message: `head` but for its length, and `size` bytes. It is lost if nobody is there.
  virtual void send_datagram(const DatagramTo& to, const wire::DatagramHead& head, const uint8_t* bytes,
                             uint32_t size) = 0;
  // A queue pair of this process has been attached to a group.
  virtual void listen_to_groups() = 0;
  // The same to the members of a group on other nodes.
  virtual void send_to_group(const wire::NetAddress& from, const wire::DatagramHead& head, const uint8_t* bytes,
                             uint32_t size) = 0;

  // ---- progress ----

  // A program polls.
  virtual void drive_from_poll() = 0;
  // The program is about to sleep until something comes.
  virtual void before_sleep() = 0;
  // A receive request was posted at a queue pair whose requester had found none.
  virtual void receive_posted() = 0;

 protected:
  ~Network() = default;
};

}  // namespace verbena
