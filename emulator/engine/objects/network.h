// SPDX-License-Identifier: BSD-2-Clause
//
// What the engine asks of engine/remote, which reaches processes by frames: processes of other nodes, and
// those of this node whose memory cannot be reached (PeerAdapter::is_within_reach). Any thread, unless a
// function says otherwise.
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

// The address of processes of the same node, which need none.
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

  // The path to the address in `attr`. nullptr: the address is of this node, or leads nowhere.
  virtual std::shared_ptr<Transport> path_to(const Qp& qp, const ibv_qp_attr& attr) = 0;
  // The path to queue pair `qpn` of a process of this node.
  virtual std::shared_ptr<Transport> path_within(const PeerAdapter& to, uint32_t qpn) = 0;
  // The queue pair has the path now and may be connected to. Starts looking for its peer. No lock is held.
  virtual void connect(Qp& qp, const std::shared_ptr<Transport>& path) = 0;
  // The UD queue pair receives datagrams from now on. No lock is held.
  virtual void receive_datagrams(Qp&) {}
  // On return engine/remote does not touch the queue pair any more. No lock is held.
  virtual void forget(Qp& qp) = 0;

  // ---- datagrams ----

  // Can other nodes be reached?
  virtual bool leads_out() const = 0;
  // Does the address belong to this node?
  virtual bool is_own(const ibv_ah_attr& address) const = 0;
  // Is the path to `to` full? Then the message waits in the send queue, as on a slow link.
  virtual bool is_full(const wire::NetAddress& to, uint32_t qpn) = 0;
  // Sends one message: `head` (its length is filled in) and `size` bytes. Without a receiver the message is
  // lost.
  virtual void send_datagram(const DatagramTo& to, const wire::DatagramHead& head, const uint8_t* bytes,
                             uint32_t size) = 0;
  // A queue pair of this process has been attached to a group, or detached. No lock is held.
  virtual void groups_changed() = 0;
  // As send_datagram, to the members of a group on other nodes.
  virtual void send_to_group(const wire::NetAddress& from, const wire::DatagramHead& head, const uint8_t* bytes,
                             uint32_t size) = 0;

  // ---- progress ----

  // A program polls.
  virtual void drive_from_poll() = 0;
  // The program is about to sleep until something arrives.
  virtual void before_sleep() = 0;
  // A receive request was posted to a queue pair whose requester had found none.
  virtual void receive_posted() = 0;

 protected:
  ~Network() = default;
};

}  // namespace verbena
