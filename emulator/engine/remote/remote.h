// SPDX-License-Identifier: BSD-2-Clause
//
// The transport by frames: to processes of other nodes, and to those of this node whose memory cannot be
// reached (PeerAdapter::is_within_reach). Its parts, lowest first; each knows only those before it:
//
// - RemotePeer (peer.h): a process, its connection, and the streams of both directions
// - RemotePath (remote_path.h): the transport of one queue pair
// - RemotePeers, QpLocations: the processes that were met, and which of them has which UD queue pair
// - OutgoingDatagrams: datagrams, and those among them that wait for a connection
// - Connections: which process has the peer of which queue pair; requests for connections
// - AnswerReceiver, DatagramReceiver, FrameReceiver: what comes is carried out
// - Deadlines, RemoteProgress: timeouts; which thread looks at the sockets
//
// Locks: the progress lock (RemoteProgress::mutex) > Qp::send_lock > RemotePeer::out_mutex.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "engine/objects/network.h"
#include "engine/remote/connections.h"
#include "engine/remote/deadlines.h"
#include "engine/remote/frame_receiver.h"
#include "engine/remote/groups.h"
#include "engine/remote/progress.h"
#include "engine/remote/remote_path.h"
#include "fabric/descriptor.h"
#include "wire/established_connection.h"

namespace verbena {

class Remote final : public Network, public wire::ConnectionObserver, private PathOwner {
 public:
  Remote(Process& process, const wire::ProcessId& self, const Connector& connector);
  Remote(const Remote&) = delete;
  Remote& operator=(const Remote&) = delete;

  // RemoteProgress
  int descriptor() const { return progress_.descriptor(); }
  int64_t serve() { return progress_.serve(); }
  void flush_all() { progress_.flush_all(); }
  void flush_last() { progress_.flush_last(); }
  void flush_at_exit() { progress_.flush_at_exit(); }

  // Is any process connected? Any thread.
  bool is_active() const { return connections_.is_active(); }

  // Another process of this node connects to this one, asks to be connected to, or passes its last datagrams
  // (is_connection_request()).
  // In the service thread.
  void take_connection_request(const std::byte* message, Descriptor& passed);

  RemoteGroups& groups() { return groups_; }

  // ---- Network ----
  std::shared_ptr<Transport> path_to(const Qp& qp, const ibv_qp_attr& attr) override {
    return connections_.path_to(qp, attr);
  }
  std::shared_ptr<Transport> path_within(const PeerAdapter& to, uint32_t qpn) override {
    return connections_.path_within(to, qpn);
  }
  void connect(Qp& qp, const std::shared_ptr<Transport>& path) override;
  void forget(Qp& qp) override;
  bool leads_out() const override { return connections_.leads_out(); }
  bool is_own(const ibv_ah_attr& address) const override { return connections_.is_own(address); }
  bool is_full(const wire::NetAddress& to, uint32_t qpn) override {
    return connections_.datagrams().is_full(to, qpn);
  }
  void send_datagram(const DatagramTo& to, const wire::DatagramHead& head, const uint8_t* bytes,
                     uint32_t size) override {
    connections_.datagrams().send(to, head, bytes, size);
  }
  void groups_changed() override { groups_.listen(); }
  void send_to_group(const wire::NetAddress& from, const wire::DatagramHead& head, const uint8_t* bytes,
                     uint32_t size) override {
    groups_.send(from, head, bytes, size);
  }
  void drive_from_poll() override { progress_.drive_from_poll(); }
  void before_sleep() override { progress_.before_sleep(); }
  void receive_posted() override { progress_.receive_posted(); }

  // ---- wire::ConnectionObserver: in the service thread (or a test's) ----
  wire::Refusal let_in(const wire::EstablishedConnection& arriving,
                       const std::function<bool()>& welcome) override;
  void arrived(const wire::EstablishedConnection& arrived) override;
  void failed(uint64_t request_id, wire::Refusal refusal) override;
  void taken(uint64_t request_id) override;

 private:
  // PathOwner
  void seek(uint32_t qpn) override { connections_.seek(qpn); }
  void watch(Qp& qp) override { deadlines_.watch(qp); }

  void take(const wire::EstablishedConnection& arrived);  // under the progress lock

  Process& process_;
  const wire::ProcessId self_;
  RemoteGroups groups_{process_};
  Connections connections_;
  FrameReceiver receiver_{process_, connections_};
  Deadlines deadlines_;
  RemoteProgress progress_;
};

}  // namespace verbena
