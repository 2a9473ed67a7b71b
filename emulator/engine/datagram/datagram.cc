// SPDX-License-Identifier: BSD-2-Clause
#include "engine/datagram/datagram.h"

#include <algorithm>
#include <bitset>
#include <cstring>
#include <new>
#include <vector>

#include "adapter/clock.h"
#include "emulator.h"
#include "engine/datagram/address_handle.h"
#include "engine/datagram/datagram_header.h"
#include "engine/datagram/delivery.h"
#include "engine/datagram/multicast.h"
#include "engine/datagram/stray.h"
#include "engine/objects/context.h"
#include "engine/objects/network.h"
#include "engine/objects/requester_context.h"
#include "engine/objects/send_request.h"
#include "engine/requester/local_bytes.h"
#include "engine/rules/route.h"
#include "fabric/hazards.h"
#include "observe/observer.h"

namespace verbena {

struct Datagrams : DatagramSender {
  std::vector<Ah> kept;  // address handles of the send queue's requests, by place
};

namespace {

constexpr uint32_t kOwnQkey = 0x80000000;

wire::DatagramHead head_of(const ibv_ah_attr& address, const DatagramMessage& message) {
  wire::DatagramHead head{};
  head.flags = message.flags;
  head.sl = message.source.sl;
  head.path_bits = message.source.path_bits;
  head.source_qpn = message.source.qpn;
  head.qkey = message.qkey;
  head.immediate = message.immediate;
  std::memcpy(head.destination, address.grh.dgid.raw, sizeof head.destination);
  return head;
}

wire::NetAddress source_of(const DatagramSender& from, const ibv_ah_attr& address) {
  const uint32_t index = std::min<uint32_t>(address.grh.sgid_index, kMaxGids - 1);
  return {from.device->port(address.port_num).gids[index].raw};
}

ibv_gid gid_of(const PortDescription& port) {
  ibv_gid gid;
  std::memcpy(gid.raw, port.gids[0].raw.data(), sizeof gid.raw);
  return gid;
}

// No device of this node has the address.
void send_to_other_node(DatagramSender& from, const ibv_ah_attr& address, uint32_t qpn,
                        const DatagramMessage& message) {
  Network* const network = from.process->network();
  if (network == nullptr || !network->leads_out() || from.device == nullptr || address.is_global == 0 ||
      network->is_own(address))
    return;
  DatagramTo to{};
  to.qpn = qpn;
  to.address = wire::NetAddress::of_gid(address.grh.dgid.raw);
  to.from = source_of(from, address);
  network->send_datagram(to, head_of(address, message), message.bytes, message.length);
}

// To the members of a group on other nodes.
void send_to_other_nodes(DatagramSender& from, const ibv_ah_attr& address, const DatagramMessage& message) {
  if (Network* const network = from.process->network(); network != nullptr && network->leads_out())
    network->send_to_group(source_of(from, address), head_of(address, message), message.bytes,
                           message.length);
}

// To a process of this node whose memory cannot be reached; `group`: to all members that it has.
void send_as_frame(DatagramSender& from, const Destination& to, const ibv_gid* group,
                   const DatagramMessage& message) {
  DatagramTo there{};
  there.qpn = to.qp->qpn;
  there.to_group = group != nullptr;
  const DeviceTable& devices = from.process->directory().devices();
  const uint32_t port = QpPath::unpack(to.qp->path.load(std::memory_order_relaxed)).port;
  ibv_ah_attr address{};
  if (group != nullptr)
    address.grh.dgid = *group;
  else
    address.grh.dgid = gid_of(devices.devices[to.qp->device % kMaxDevices].port(port));
  from.process->network_or_begin().send_datagram(there, head_of(address, message), message.bytes,
                                                 message.length);
}

Delivery send_to_one(DatagramSender& from, const ibv_ah_attr& address, uint32_t qpn,
                     const DatagramMessage& message) {
  const NodeDirectory& directory = from.process->directory();
  Destination& to = from.targets.destination(address, qpn);
  for (bool fresh = false;; fresh = true) {
    // The queue pair may have been replaced by another one since the last datagram.
    if ((fresh || !to.adapter) && !DatagramTargets::resolve(*from.process, address, qpn, &to)) {
      note_stray(from, address, to, qpn, message);
      send_to_other_node(from, address, qpn, message);
      return Delivery::kDropped;
    }
    HazardGuard guard(from.process->hazards(), to.adapter->slot());
    const bool is_open = is_ready(to, directory);
    to.has_been_ready |= is_open;
    if (is_open && !to.adapter->is_within_reach()) {
      guard.end();
      send_as_frame(from, to, nullptr, message);
      return Delivery::kTaken;
    }
    if (is_open) {
      const Delivery delivery = deliver(from, to, message);
      if (to.event_due != 0) from.events_due.push_back(&to);
      return delivery;
    }
    if (fresh) break;
  }
  note_stray(from, address, to, qpn, message);
  return Delivery::kDropped;
}

bool is_itself(const DatagramSender& from, const MulticastMember& member) {
  return member.slot == from.process->membership().slot() && member.qp_index == from.index &&
         member.incarnation == from.incarnation;
}

void send_to_group(DatagramSender& from, const ibv_gid& gid, const DatagramMessage& message) {
  const NodeDirectory& directory = from.process->directory();
  const MulticastTable table(directory);
  MulticastGid name;
  std::memcpy(name.data(), gid.raw, sizeof gid.raw);
  std::vector<DatagramTargets::Member>& members = from.targets.members(*from.process, name);
  from.events_due.reserve(members.size());
  std::bitset<kMaxSlots> by_frame;  // each of these processes gets one copy
  for (const DatagramTargets::Member& member : members) {
    if (from.blocks_own_multicast && is_itself(from, member.found.member)) continue;
    // From another node each process has a copy.
    if (from.device == nullptr && member.found.member.slot != from.process->membership().slot()) continue;
    Destination& to = *member.destination;
    HazardGuard guard(from.process->hazards(), to.adapter->slot());
    // Under the hazard guard: a process that detaches waits for it.
    if (!table.is_still(member.found) || !is_ready(to, directory)) continue;
    if (const uint32_t slot = to.adapter->slot(); !to.adapter->is_within_reach()) {
      guard.end();
      if (!by_frame.test(slot)) send_as_frame(from, to, &gid, message);
      by_frame.set(slot);
      continue;
    }
    deliver(from, to, message);
    if (to.event_due != 0) from.events_due.push_back(&to);
  }
}

// Packets of RoCE v2 are told where they are sent and received.
bool goes_by_packets(const DatagramSender& from, const Ah& ah) {
  Network* const network = from.process->network();
  const NetworkDescription& described = from.process->directory().devices().network;
  if (described.kind != NetworkKind::kRoce || network == nullptr || !network->leads_out() || ah.attr.is_global == 0)
    return false;
  if (!ah.multicast) return !network->is_own(ah.attr);
  const auto* const end = described.addresses.begin() + std::min(described.count, kMaxGids);
  return std::find(described.addresses.begin(), end, source_of(from, ah.attr).bytes) != end;
}

[[gnu::cold]] void tell_of_datagram(Observer& observer, const Qp& qp, const SendRequest& request,
                        const DatagramMessage& message, const QpPath& path) {
  if (goes_by_packets(*qp.datagrams, *request.ah)) return;
  const PacketRoute route = route_of(request.ah->attr, path.port, *qp.context->device,
                                     qp.process->directory().devices());
  observer.on_datagram({.source_qpn = message.source.qpn,
                        .target_qpn = request.remote_qpn,
                        .psn = qp.requester.psn,
                        .qkey = message.qkey,
                        .immediate = message.immediate,
                        .pkey = message.pkey,
                        .with_immediate = (message.flags & kCqeWithImmediate) != 0,
                        .solicited = message.solicited,
                        .route = route,
                        .payload = std::span(message.bytes).subspan(kGrhBytes, request.length)});
}

// A datagram from another node. Its header says where it comes from.
[[gnu::cold]] void tell_of_datagram(Observer& observer, const RemoteDatagram& datagram) {
  observer.on_datagram({.source_qpn = datagram.source.qpn,
                        .target_qpn = datagram.target_qpn,
                        .psn = 0,
                        .qkey = datagram.qkey,
                        .immediate = datagram.immediate,
                        .pkey = kDefaultPkey,
                        .with_immediate = (datagram.flags & kCqeWithImmediate) != 0,
                        .solicited = (datagram.flags & kCqeSolicited) != 0,
                        .route = route_in(std::span<const uint8_t, kGrhBytes>(datagram.bytes, kGrhBytes)),
                        .payload = std::span(datagram.bytes + kGrhBytes, datagram.length - kGrhBytes)});
}

}  // namespace

std::shared_ptr<Datagrams> make_datagrams(const Qp& qp) {
  auto made = std::make_shared<Datagrams>();
  made->process = qp.process;
  made->device = qp.context->device;
  made->index = qp.index;
  made->incarnation = qp.shared->incarnation;
  made->events_due.reserve(1);
  made->kept.resize(qp.sq.size());
  return made;
}

void block_own_multicast(Qp* qp) { qp->datagrams->blocks_own_multicast = true; }

VendorError send_datagram(Qp& qp, const SendOperation& operation, const SendRequest& request) {
  const uint32_t longest = std::min(qp.requester.mtu, kMaxDatagram);
  if (request.length > longest) return VendorError::message_too_long;
  const Ah* ah = request.ah;
  if (ah == nullptr) return VendorError::malformed_request;
  if (ah->pd != qp.pd) return VendorError::address_handle_other_pd;
  const ibv_ah_attr& address = ah->attr;

  DatagramMessage message;
  if (VendorError error = gather_local_bytes(qp, operation, request, message.bytes + kGrhBytes);
      error != VendorError::none)
    return error;
  message.header = ah->header;
  message.header.set_length(request.length, operation.carries_immediate);
  std::memcpy(message.bytes, message.header.bytes.data(), kGrhBytes);
  const DeviceDescription& device = *qp.context->device;
  const QpPath path = QpPath::unpack(qp.shared->path.load(std::memory_order_relaxed));
  const uint32_t path_mask = (1u << device.lmc) - 1;  // of more bits the port has none (vol. 1, 4.1.3)
  const auto lid = static_cast<uint16_t>(device.port(path.port).lid | (address.src_path_bits & path_mask));
  const uint8_t with_grh = address.is_global != 0 ? DatagramSource::kWithGrh : uint8_t{0};
  const auto path_bits = static_cast<uint8_t>(address.dlid & path_mask);
  message.source = {qp.shared->qpn, lid, reported_service_level(ah->header.kind, address.sl),
                    static_cast<uint8_t>(with_grh | path_bits)};
  message.pkey = path.pkey;
  message.qkey = (request.remote_qkey & kOwnQkey) != 0 ? qp.attr.qkey : request.remote_qkey;
  message.immediate = request.immediate;
  message.length = kGrhBytes + request.length;
  message.solicited = (request.flags & IBV_SEND_SOLICITED) != 0;
  message.to_group = ah->multicast;
  message.flags = kCqeReceive | kCqeFromShared | kCqeDatagram;
  if (operation.carries_immediate) message.flags |= kCqeWithImmediate;
  if (message.solicited) message.flags |= kCqeSolicited;

  if (Observer* const seen = observer(); seen != nullptr) [[unlikely]]
    tell_of_datagram(*seen, qp, request, message, path);
  DatagramSender& from = *qp.datagrams;
  from.may_be_eager = qp.requester.may_be_eager;
  from.events_due.clear();
  if (port_down(qp.process->directory(), qp.context->device_index, path.port))
    return VendorError::none;  // lost on the way
  try {
    if (!ah->multicast)
      send_to_one(from, address, request.remote_qpn, message);
    else if (request.remote_qpn == kMulticastQpn) {
      send_to_group(from, address.grh.dgid, message);
      send_to_other_nodes(from, address, message);
    }
  } catch (const std::bad_alloc&) {
    // The destination is new, and there is no memory for it: the datagram is lost.
  }
  return VendorError::none;
}

bool must_wait(Qp& qp, const SendRequest& request) {
  Network* const network = qp.process->network();
  const Ah* ah = request.ah;
  if (network == nullptr || ah == nullptr || ah->multicast || ah->attr.is_global == 0) return false;
  if (const auto& found = qp.datagrams->targets.destination(ah->attr, request.remote_qpn).adapter) {
    // Within this node only a stream can be full.
    return !found->is_within_reach() && network->is_full(kThisNode, request.remote_qpn);
  }
  return network->is_full(wire::NetAddress::of_gid(ah->attr.grh.dgid.raw), request.remote_qpn);
}

void raise_datagram_events(Qp& qp) { raise_events(*qp.datagrams); }

Delivery receive_remote_datagram(DatagramSender& from, const RemoteDatagram& datagram, bool may_wait) {
  if (datagram.length < kGrhBytes || datagram.length > kGrhBytes + kMaxDatagram) return Delivery::kDropped;
  DatagramMessage message;
  message.source = datagram.source;
  message.qkey = datagram.qkey;
  message.immediate = datagram.immediate;
  message.length = datagram.length;
  message.solicited = (datagram.flags & kCqeSolicited) != 0;
  message.flags = static_cast<uint8_t>(kCqeReceive | kCqeFromShared | kCqeDatagram |
                                       (datagram.flags & (kCqeWithImmediate | kCqeSolicited)));
  message.may_wait = may_wait;
  message.to_group = datagram.target_qpn == kMulticastQpn;
  std::memcpy(message.bytes, datagram.bytes, datagram.length);
  const bool is_elsewhere = from.origin.node != nullptr && !(*from.origin.node == kThisNode) &&
                            from.process->directory().devices().network.kind != NetworkKind::kRoce;
  if (Observer* const seen = observer(); seen != nullptr && is_elsewhere) [[unlikely]]
    tell_of_datagram(*seen, datagram);
  from.events_due.clear();
  ibv_ah_attr address{};
  address.is_global = 1;
  address.grh.dgid = datagram.destination;
  Delivery delivery = Delivery::kDropped;
  try {
    if (datagram.target_qpn == kMulticastQpn)
      send_to_group(from, datagram.destination, message);
    else
      delivery = send_to_one(from, address, datagram.target_qpn, message);
  } catch (const std::bad_alloc&) {
  }
  raise_events(from);
  return delivery;
}

void keep_address(Qp& qp, SendRequest& kept) {
  if (kept.ah == nullptr) return;
  Ah& copy = qp.datagrams->kept[kept.number & (qp.sq.size() - 1)];
  copy = *kept.ah;
  kept.ah = &copy;
}

}  // namespace verbena
