// SPDX-License-Identifier: BSD-2-Clause
//
// The network of a node with RoCE v2 (`verbena run --roce`): queue pairs and datagrams of other nodes, of the
// kernel's rxe and of adapters, by packets over UDP. Its parts, lowest first; each knows only those before
// it:
//
// - PacketSender: packets from one address
// - PacketResponder: what requests in packets do to a queue pair
// - RocePath: the transport of one queue pair; RoceDatagrams: UD
// - PacketForwarder (port_sharing.h): packets of other processes of the node
// - Management: MADs of the connection manager
// - RoceReceiver: which queue pair a packet is for
// - RoceProgress: which thread receives; timers
//
// Processes of the node itself are reached in shared memory, or by engine/remote.
//
// Locks: RoceProgress::mutex > Qp::send_lock.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "engine/objects/network.h"
#include "engine/roce_transport/packet_sender.h"
#include "engine/roce_transport/roce_progress.h"
#include "engine/roce_transport/roce_receiver.h"
#include "fabric/service_socket.h"
#include "udp/roce_socket.h"

namespace verbena {

class RoceNetwork final : public Network {
 public:
  explicit RoceNetwork(Process& process);
  ~RoceNetwork();

  // Opens the sockets. 0 or an errno with a line in `problem`.
  int open(std::string* problem);

  // engine/remote, for processes of this node; from when it has begun.
  void set_within(Network* within) { within_.store(within, std::memory_order_release); }

  // ---- the connection manager's MADs ----
  // nullptr: no more; on return `arrived` is not running.
  void receive_mads_by(void (*arrived)(void* context, const Mad& mad), void* context);
  void send_mad(const Mad& mad);

  int descriptor() const { return progress_.descriptor(); }
  int64_t serve() { return progress_.serve(); }
  void flush_at_exit() { progress_.flush_at_exit(); }

  // ---- Network ----
  std::shared_ptr<Transport> path_to(const Qp& qp, const ibv_qp_attr& attr) override;
  std::shared_ptr<Transport> path_within(const PeerAdapter& to, uint32_t qpn) override;
  void connect(Qp& qp, const std::shared_ptr<Transport>& path) override;
  void receive_datagrams(Qp& qp) override;
  void forget(Qp& qp) override;
  bool leads_out() const override { return true; }
  bool is_own(const ibv_ah_attr& address) const override;
  bool is_full(const wire::NetAddress& to, uint32_t qpn) override;
  void send_datagram(const DatagramTo& to, const wire::DatagramHead& head, const uint8_t* bytes,
                     uint32_t size) override;
  void groups_changed() override;
  void send_to_group(const wire::NetAddress& from, const wire::DatagramHead& head, const uint8_t* bytes,
                     uint32_t size) override;
  void drive_from_poll() override;
  void before_sleep() override;
  void receive_posted() override;

 private:
  struct Port {
    udp::RoceSocket receiving;
    PacketSender sending;
  };
  static void serve_call(void* self, ServiceCall& call);
  PacketSender* sender_at(const wire::NetAddress& address);
  Network* within() const { return within_.load(std::memory_order_acquire); }
  void settle_activity();

  Process& process_;
  std::mutex ports_mutex_;  // while ports are added, which others may ask for already
  std::vector<std::unique_ptr<Port>> ports_;
  Management management_{process_};
  RoceReceiver receiver_;
  RoceProgress progress_;
  bool takes_mads_ = false;          // under the lock
  std::set<uint32_t> datagram_qps_;  // queue pairs that receive datagrams; under the lock
  std::atomic<Network*> within_{nullptr};
};

}  // namespace verbena
