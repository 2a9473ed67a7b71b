// SPDX-License-Identifier: BSD-2-Clause
#include "engine/roce_transport/roce_network.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/datagram/multicast.h"
#include "engine/objects/context.h"
#include "engine/objects/process.h"
#include "engine/objects/qp.h"
#include "engine/roce_transport/port_sharing.h"
#include "engine/rules/address_port.h"
#include "fabric/fork_descriptors.h"
#include "observe/log.h"

namespace verbena {

RoceNetwork::RoceNetwork(Process& process)
    : process_(process),
      receiver_(process),
      progress_(
          process, receiver_, management_,
          [](void* self, const Mad& mad) { static_cast<RoceNetwork*>(self)->send_mad(mad); }, this) {
  process_.membership().services().serve_by(ServiceNumber::kPackets, &RoceNetwork::serve_call, this);
}

RoceNetwork::~RoceNetwork() {
  process_.membership().services().serve_by(ServiceNumber::kPackets, nullptr, nullptr);
}

// In the service thread.
void RoceNetwork::serve_call(void* self, ServiceCall& call) {
  RoceNetwork& network = *static_cast<RoceNetwork*>(self);
  PacketsCall message;
  if (call.message.size() != sizeof message) return;
  std::memcpy(&message, call.message.data(), sizeof message);
  if (message.kind == PacketsCall::Kind::kForward)
    return network.progress_.add_inbox(std::move(call.connection));
  if (message.kind != PacketsCall::Kind::kSocket) return;
  std::lock_guard lock(network.ports_mutex_);
  if (message.index >= network.ports_.size()) return;
  const int fd = network.ports_[message.index]->receiving.fd();
  call.connection.send(call.message, {&fd, 1});
}

int RoceNetwork::open(std::string* problem) {
  const NetworkDescription& network = process_.directory().devices().network;
  for (uint32_t i = 0; i < std::min(network.count, kMaxGids); ++i) {
    const wire::NetAddress address{network.addresses[i]};
    auto port = std::make_unique<Port>();
    int error = open_shared_port(process_.membership(), i, address, &port->receiving, problem);
    if (error == 0) error = port->sending.open(address, problem);
    if (error != 0) return error;
    port->receiving.receive_in_batches();
    keep_from_children(port->receiving.fd());
    progress_.add_socket(port->receiving);
    std::lock_guard lock(ports_mutex_);
    ports_.push_back(std::move(port));
  }
  return 0;
}

PacketSender* RoceNetwork::sender_at(const wire::NetAddress& address) {
  for (const auto& port : ports_)
    if (port->sending.address() == address) return &port->sending;
  return nullptr;
}

// ---- queue pairs ----

bool RoceNetwork::is_own(const ibv_ah_attr& address) const {
  const DeviceTable& devices = process_.directory().devices();
  for (uint32_t i = 0; i < std::min(devices.count, kMaxDevices); ++i)
    if (find_port(address, devices.devices[i]) != 0) return true;
  return false;
}

std::shared_ptr<Transport> RoceNetwork::path_to(const Qp& qp, const ibv_qp_attr& attr) {
  const ibv_ah_attr& address = attr.ah_attr;
  if (address.is_global == 0 || is_own(address)) return nullptr;
  const RocePeer peer{wire::NetAddress::of_gid(address.grh.dgid.raw), attr.dest_qp_num};
  if (!peer.address.is_reachable()) return nullptr;
  const GidEntry& source =
      qp.context->device->port(attr.port_num).gids[std::min<uint32_t>(address.grh.sgid_index, kMaxGids - 1)];
  PacketSender* const sender = sender_at({source.raw});
  if (sender == nullptr) {
    VERBENA_WARN(roce_no_path, "QP 0x%06x: no way to %s: the GID of sgid_index is no address of the network",
                 qp.shared->qpn, peer.address.text().c_str());
    return nullptr;
  }
  if (!process_.directory().devices().network.takes_from(peer.address.bytes))
    VERBENA_WARN(roce_stranger, "QP 0x%06x: packets of its peer %s will be dropped: it is not in --peers",
                 qp.shared->qpn, peer.address.text().c_str());
  return std::make_shared<RocePath>(const_cast<Qp&>(qp), attr, peer, *sender, progress_);
}

std::shared_ptr<Transport> RoceNetwork::path_within(const PeerAdapter& to, uint32_t qpn) {
  Network* const others = within();
  return others != nullptr ? others->path_within(to, qpn) : nullptr;
}

void RoceNetwork::settle_activity() {
  progress_.set_active(receiver_.has_routes() || !datagram_qps_.empty() || takes_mads_);
}

void RoceNetwork::connect(Qp& qp, const std::shared_ptr<Transport>& path) {
  std::lock_guard lock(progress_.mutex());
  progress_.flush_answers();
  if (const auto old = receiver_.find(qp.shared->qpn)) progress_.forget(*old);
  receiver_.add_route(qp.shared->qpn, std::static_pointer_cast<RocePath>(path));
  settle_activity();
}

void RoceNetwork::receive_datagrams(Qp& qp) {
  std::lock_guard lock(progress_.mutex());
  datagram_qps_.insert(qp.shared->qpn);
  settle_activity();
}

void RoceNetwork::forget(Qp& qp) {
  {
    std::lock_guard lock(progress_.mutex());
    progress_.flush_answers();
    if (const auto path = receiver_.find(qp.shared->qpn)) progress_.forget(*path);
    receiver_.remove_route(qp.shared->qpn);
    datagram_qps_.erase(qp.shared->qpn);
    settle_activity();
  }
  if (Network* const others = within(); others != nullptr) others->forget(qp);
}

// ---- MADs ----

void RoceNetwork::receive_mads_by(void (*arrived)(void*, const Mad&), void* context) {
  management_.receive_by(arrived, context);
  std::lock_guard lock(progress_.mutex());
  takes_mads_ = arrived != nullptr;
  settle_activity();
}

void RoceNetwork::send_mad(const Mad& mad) {
  if (PacketSender* const sender = sender_at(mad.from); sender != nullptr && mad.to.is_reachable())
    management_.send(*sender, mad);
}

// ---- datagrams ----

bool RoceNetwork::is_full(const wire::NetAddress& to, uint32_t qpn) {
  Network* const others = within();
  return to == kThisNode && others != nullptr && others->is_full(to, qpn);
}

void RoceNetwork::send_datagram(const DatagramTo& to, const wire::DatagramHead& head, const uint8_t* bytes,
                                uint32_t size) {
  if (to.address == kThisNode) {
    if (Network* const others = within(); others != nullptr) others->send_datagram(to, head, bytes, size);
    return;
  }
  if (PacketSender* const sender = sender_at(to.from); sender != nullptr && to.address.is_reachable())
    receiver_.datagrams().send(*sender, to, head, bytes, size);
}

void RoceNetwork::groups_changed() {
  std::lock_guard lock(progress_.mutex());
  progress_.follow_groups();
}

// A group of one IP version is not reached from an address of the other one.
void RoceNetwork::send_to_group(const wire::NetAddress& from, const wire::DatagramHead& head,
                                const uint8_t* bytes, uint32_t size) {
  DatagramTo to{};
  to.address = wire::NetAddress::of_gid(head.destination);
  to.from = from;
  to.qpn = kMulticastQpn;
  if (PacketSender* const sender = sender_at(from);
      sender != nullptr && to.address.is_ipv4() == from.is_ipv4())
    receiver_.datagrams().send(*sender, to, head, bytes, size);
}

// ---- progress ----

void RoceNetwork::drive_from_poll() {
  progress_.drive_from_poll();
  if (Network* const others = within(); others != nullptr) others->drive_from_poll();
}

void RoceNetwork::before_sleep() {
  progress_.before_sleep();
  if (Network* const others = within(); others != nullptr) others->before_sleep();
}

void RoceNetwork::receive_posted() {
  if (Network* const others = within(); others != nullptr) others->receive_posted();
}

}  // namespace verbena
