// SPDX-License-Identifier: BSD-2-Clause
#include "engine/datagram/datagram.h"

#include <algorithm>
#include <bitset>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "engine/clock.h"
#include "engine/completion/completion.h"
#include "engine/datagram/address_handle.h"
#include "engine/datagram/datagram_header.h"
#include "engine/datagram/datagram_order.h"
#include "engine/datagram/datagram_targets.h"
#include "engine/datagram/multicast.h"
#include "engine/remote/remote.h"
#include "engine/requester/psn.h"
#include "engine/requester/requester.h"
#include "engine/responder/key_errors.h"
#include "fabric/hazards.h"
#include "observe/mutant.h"

namespace verbena {
namespace {

constexpr uint32_t kOwnQkey = 0x80000000;
constexpr uint32_t kMaxMtu = 4096;
constexpr uint32_t kMostQkeyViolations = UINT16_MAX;

// One message, whole: the room for its GRH, and the bytes that the program gave.
struct Message {
  DatagramHeader header;
  DatagramSource source{};
  uint32_t qkey = 0;
  uint32_t immediate = 0;
  uint32_t length = 0;  // with the 40 bytes
  uint8_t flags = 0;    // CqeFlags
  bool solicited = false;
  bool may_wait = false;  // for a receive request
  uint8_t bytes[kGrhBytes + kMaxMtu];
};

}  // namespace

struct Datagrams {
  DatagramTargets targets;
  std::vector<Destination*> events_due;
  std::vector<Ah> kept;  // by place in the send queue
};

namespace {

void ring_doorbell(Destination& to) {
  to.adapter->view().header().doorbell.store(1, std::memory_order_release);
  to.adapter->kick();
}

// Puts the message where the receive request says. The keys of the request are checked now. `position`: of
// its completion. What has come before it, from whomever, must not be scattered over it when it is polled.
VendorError place(const Qp& from, Destination& to, const Message& message, const ReceiveWqe& wqe,
                  uint64_t position) {
  const SegmentView& view = to.adapter->view();
  iovec remote[PeerAdapter::kMaxRanges];
  size_t remotes = 0;
  uint32_t room = 0;
  const uint32_t count = std::min(wqe.sge_count, to.receives.max_sge);
  for (uint32_t i = 0; i < count && room < message.length && remotes < PeerAdapter::kMaxRanges; ++i) {
    const WqeSge sge = wqe.sge[i];
    if (sge.length == 0) continue;
    const uint32_t used = std::min(sge.length, message.length - room);
    const Translation found = translate(view, sge.lkey, false, to.receives.shared->pd,
                                        MemoryUse::local_scatter, sge.address, used);
    if (found.check != KeyCheck::kOk) return local_key_error(found.check);
    remote[remotes++] = {reinterpret_cast<void*>(found.address), used};
    room += used;
  }
  if (room < message.length) return VendorError::receive_too_small;
  const NodeDirectory& directory = from.process->directory();
  const iovec local{const_cast<uint8_t*>(message.bytes), message.length};
  settle(to, directory, position, remote, remotes, Until::kEagerAreScattered);
  do {
    if (to.adapter->write(directory, &local, 1, remote, remotes) != 0) return VendorError::local_memory_gone;
    // What was just being appended then has landed now, perhaps under this message.
  } while (settle(to, directory, position, remote, remotes, Until::kUnfinishedAreScattered));
  return VendorError::none;
}

// There is no room for the completion: it is lost. Where that is ignored, the message must not be.
VendorError complete_without_room(const Qp& from, Destination& to, const Message& message, uint32_t slot) {
  if (!to.completions.ignores_overrun()) {
    to.completion_queue->overrun.store(1, std::memory_order_release);
    ring_doorbell(to);
    return VendorError::none;
  }
  const uint64_t end = to.completions.places->tail.load(std::memory_order_acquire);
  const VendorError error = place(from, to, message, to.receives.wqe(slot), end);
  to.receives.abandon(slot);
  return error;
}

// Publishes the receive completion for `slot`. `eager`: the bytes are in it, or in the slot's landing
// buffer.
void complete(Destination& to, const Message& message, uint32_t slot, const Claim& claim, VendorError error,
              bool eager) {
  const auto status = find_vendor_error(static_cast<uint32_t>(error))->status;
  Cqe& entry = *claim.entry;
  entry.qp_index = to.index;
  entry.qp_incarnation = to.incarnation;
  entry.index = slot;
  entry.byte_len = message.length - (mutated("ud-length-without-grh") ? kGrhBytes : 0);
  entry.immediate = message.immediate;
  entry.status = static_cast<uint8_t>(status);
  entry.opcode = IBV_WC_RECV & ~IBV_WC_RECV;
  entry.vendor_err = static_cast<uint8_t>(error);
  std::memcpy(entry.payload, &message.source, sizeof message.source);
  entry.flags = message.flags;
  if (eager && message.length <= to.room_in_entry()) {
    entry.flags |= kCqeInline;
    std::memcpy(entry.payload + sizeof message.source, message.bytes, message.length);
  }
  publish_completion(to.completions, claim, eager ? CqeKind::kEager : CqeKind::kPublished);
  to.event_due = message.solicited || status != IBV_WC_SUCCESS ? 2 : 1;
}

// Of the port that the queue pair is at (ibv_query_port(3): qkey_viol_cntr). It stays at its most.
void count_qkey_violation(const NodeDirectory& directory, uint32_t device) {
  if (device >= kMaxDevices) return;
  std::atomic<uint32_t>& count = directory.header().qkey_violations[device];
  uint32_t seen = count.load(std::memory_order_relaxed);
  while (seen < kMostQkeyViolations &&
         !count.compare_exchange_weak(seen, seen + 1, std::memory_order_relaxed)) {
  }
}

// Nobody took it at the device that it came to: one of this node that has the address, and whose port is up.
void count_stray(const NodeDirectory& directory, const ibv_ah_attr& address) {
  const DeviceTable& table = directory.devices();
  for (uint32_t i = 0; i < std::min(table.count, kMaxDevices); ++i)
    if (leads_to(address, table.devices[i]) && !port_down(directory, i))
      directory.header().stray_datagrams[i].fetch_add(1, std::memory_order_relaxed);
}

// Under a hazard guard, and the destination is open.
Delivery deliver(const Qp& from, Destination& to, const Message& message) {
  SharedQp& there = *to.qp;
  const uint32_t seen_bits = mutated("ud-short-qkey") ? 0xffffu : ~0u;
  if (((there.qkey.load(std::memory_order_relaxed) ^ message.qkey) & seen_bits) != 0 && !mutated("ud-any-qkey")) {
    there.qkey_violations.fetch_add(1, std::memory_order_relaxed);
    count_qkey_violation(from.process->directory(), there.device);
    return Delivery::kDropped;
  }
  uint32_t slot = 0;
  bool limit_reached = false;
  if (!to.receives.take(from.process->membership().worker(), &slot, &limit_reached, message.length)) {
    if (message.may_wait) return Delivery::kNoReceive;
    there.dropped.fetch_add(1, std::memory_order_relaxed);
    return Delivery::kDropped;
  }
  if (limit_reached) ring_doorbell(to);
  there.rq_taken.fetch_add(1, std::memory_order_relaxed);
  const ReceiveWqe& wqe = to.receives.wqe(slot);
  const uint32_t epoch = to.adapter->view().header().mr_epoch.load(std::memory_order_acquire) & 0xffffff;
  const bool lands = from.may_be_eager && message.length <= kBounceSize && wqe.epoch == epoch &&
                     epoch != ReadyWord::kNeverValid;
  if (lands && message.length > to.room_in_entry())
    std::memcpy(to.receives.bounce(slot), message.bytes, message.length);
  // The completion's place first: what comes after it is scattered after it.
  const Claim claim = claim_completion(to.completions, from.process->membership().worker());
  VendorError error = VendorError::none;
  if (claim.entry == nullptr)
    error = complete_without_room(from, to, message, slot);
  else if (!lands)
    error = place(from, to, message, wqe, claim.position);
  // Before its completion can be polled: whoever polls it finds the QP in ERR.
  if (error != VendorError::none) there.pending_flags.fetch_or(kPendingFatal, std::memory_order_acq_rel);
  if (claim.entry != nullptr) complete(to, message, slot, claim, error, lands);
  if (error != VendorError::none) {
    ring_doorbell(to);
    return Delivery::kDropped;
  }
  there.requests_in.fetch_add(1, std::memory_order_relaxed);
  there.bytes_in.fetch_add(message.length, std::memory_order_relaxed);
  return Delivery::kTaken;
}

wire::DatagramHead head_of(const ibv_ah_attr& address, const Message& message) {
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

wire::NetAddress source_of(const Qp& qp, const ibv_ah_attr& address) {
  return {qp.context->device->gids[std::min<uint32_t>(address.grh.sgid_index, kMaxGids - 1)].raw};
}

// Nobody of this node is at the address.
void send_to_other_node(Qp& qp, const ibv_ah_attr& address, uint32_t qpn, const Message& message) {
  Remote* const remote = qp.process->remote();
  if (remote == nullptr || !remote->leads_out() || qp.index == kRemoteIndex || address.is_global == 0 ||
      remote->is_own(address))
    return;
  DatagramTo to{};
  to.qpn = qpn;
  to.address = wire::NetAddress::of_gid(address.grh.dgid.raw);
  to.from = source_of(qp, address);
  remote->send_datagram(to, head_of(address, message), message.bytes, message.length);
}

// To the members of a group on other nodes.
void send_to_other_nodes(Qp& qp, const ibv_ah_attr& address, const Message& message) {
  if (Remote* const remote = qp.process->remote(); remote != nullptr && remote->leads_out())
    remote->groups().send(source_of(qp, address), head_of(address, message), message.bytes, message.length);
}

// To a process of this node whose memory cannot be reached; `group`: to all members that it has.
void send_as_frame(Qp& qp, const Destination& to, const ibv_gid* group, const Message& message) {
  DatagramTo there{};
  there.qpn = to.qp->qpn;
  there.to_group = group != nullptr;
  const DeviceTable& devices = qp.process->directory().devices();
  ibv_ah_attr address{};
  if (group != nullptr)
    address.grh.dgid = *group;
  else
    std::memcpy(address.grh.dgid.raw, devices.devices[to.qp->device % kMaxDevices].gids[0].raw.data(), 16);
  qp.process->remote_or_begin().send_datagram(there, head_of(address, message), message.bytes, message.length);
}

Delivery send_to_one(Qp& qp, const ibv_ah_attr& address, uint32_t qpn, const Message& message) {
  const NodeDirectory& directory = qp.process->directory();
  Destination& to = qp.datagrams->targets.destination(address, qpn);
  for (bool fresh = false;; fresh = true) {
    // What is there may have gone, and another may have come, since we were there last.
    if ((fresh || !to.adapter) && !DatagramTargets::resolve(qp, address, qpn, &to)) {
      count_stray(directory, address);
      send_to_other_node(qp, address, qpn, message);
      return Delivery::kDropped;
    }
    HazardGuard guard(directory, qp.process->membership().slot(), to.adapter->slot());
    const bool is_open = open(to, directory);
    if (is_open && !to.adapter->is_within_reach()) {
      guard.end();
      send_as_frame(qp, to, nullptr, message);
      return Delivery::kTaken;
    }
    if (is_open) {
      const Delivery delivery = deliver(qp, to, message);
      if (to.event_due != 0) qp.datagrams->events_due.push_back(&to);
      return delivery;
    }
    if (fresh) break;
  }
  count_stray(directory, address);
  return Delivery::kDropped;
}

bool is_itself(const Qp& qp, const MulticastMember& member) {
  return member.slot == qp.process->membership().slot() && member.qp_index == qp.index &&
         member.incarnation == qp.shared->incarnation;
}

void send_to_group(Qp& qp, const ibv_gid& gid, const Message& message) {
  const NodeDirectory& directory = qp.process->directory();
  const MulticastTable table(directory);
  MulticastGid name;
  std::memcpy(name.data(), gid.raw, sizeof gid.raw);
  std::vector<DatagramTargets::Member>& members = qp.datagrams->targets.members(qp, name);
  qp.datagrams->events_due.reserve(members.size());
  std::bitset<kMaxSlots> by_frame;  // each of these processes gets one copy
  for (const DatagramTargets::Member& member : members) {
    if (qp.blocks_own_multicast && is_itself(qp, member.found.member)) continue;
    // From another node each process has a copy.
    if (qp.index == kRemoteIndex && member.found.member.slot != qp.process->membership().slot()) continue;
    Destination& to = *member.destination;
    HazardGuard guard(directory, qp.process->membership().slot(), to.adapter->slot());
    // Looked at on the hazard guard: whoever detaches waits for it.
    if (!table.is_still(member.found) || !open(to, directory)) continue;
    if (const uint32_t slot = to.adapter->slot(); !to.adapter->is_within_reach()) {
      guard.end();
      if (!by_frame.test(slot)) send_as_frame(qp, to, &gid, message);
      by_frame.set(slot);
      continue;
    }
    deliver(qp, to, message);
    if (mutated("mcast-two-copies")) deliver(qp, to, message);
    if (to.event_due != 0) qp.datagrams->events_due.push_back(&to);
    if (mutated("mcast-first-only")) break;
  }
}

// Collects the program's bytes behind the room for the header. Its memory stays registered meanwhile.
VendorError gather(Qp& qp, const SendOperation& operation, const SendRequest& request, Message* message) {
  const uint32_t own_slot = qp.process->membership().slot();
  const HazardGuard guard(qp.process->directory(), own_slot, own_slot);
  iovec ranges[PeerAdapter::kMaxRanges];
  size_t count = 0;
  if (VendorError error = find_local_bytes(qp, operation, request, ranges, &count);
      error != VendorError::none)
    return error;
  uint8_t* to = message->bytes + kGrhBytes;
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(to, ranges[i].iov_base, ranges[i].iov_len);
    to += ranges[i].iov_len;
  }
  return VendorError::none;
}

}  // namespace

std::shared_ptr<Datagrams> make_datagrams(const Qp& qp) {
  auto made = std::make_shared<Datagrams>();
  made->events_due.reserve(1);
  made->kept.resize(qp.sq.size());
  return made;
}

VendorError send_datagram(Qp& qp, const SendOperation& operation, const SendRequest& request) {
  const uint32_t longest = std::min(qp.mtu, kMaxMtu);
  if (request.length > longest && mutated("ud-too-long")) {
    ibv_sge rest = *request.sges;
    rest.length = std::min(rest.length, longest);
    SendRequest cut = request;
    cut.sges = &rest, cut.sge_count = 1, cut.length = rest.length;
    return send_datagram(qp, operation, cut);
  }
  if (request.length > longest) return VendorError::message_too_long;
  const Ah* ah = request.ah;
  if (ah == nullptr) return VendorError::malformed_request;
  if (ah->pd != qp.pd) return VendorError::address_handle_other_pd;
  const ibv_ah_attr& address = ah->attr;

  Message message;
  if (VendorError error = gather(qp, operation, request, &message); error != VendorError::none) return error;
  message.header = ah->header;
  message.header.set_length(request.length, operation.carries_immediate);
  std::memcpy(message.bytes, message.header.bytes.data(), kGrhBytes);
  if (mutated("ud-grh-missing")) std::memset(message.bytes, 0, kGrhBytes);
  const auto lid = static_cast<uint16_t>(qp.context->device->lid);
  const uint8_t with_grh = address.is_global != 0 ? DatagramSource::kWithGrh : uint8_t{0};
  message.source = {qp.shared->qpn, lid, address.sl, with_grh};
  if (mutated("ud-other-source")) ++message.source.qpn;
  message.qkey = (request.remote_qkey & kOwnQkey) != 0 ? qp.attr.qkey : request.remote_qkey;
  message.immediate = mutated("ud-immediate-lost") ? 0 : request.immediate;
  message.length = kGrhBytes + request.length;
  if (mutated("ud-offset")) {
    std::memmove(message.bytes, message.bytes + kGrhBytes, request.length);
    std::memset(message.bytes + request.length, 0, kGrhBytes);
  }
  message.solicited = (request.flags & IBV_SEND_SOLICITED) != 0;
  message.flags = kCqeReceive | kCqeFromShared | kCqeDatagram;
  if (operation.carries_immediate) message.flags |= kCqeWithImmediate;
  if (message.solicited) message.flags |= kCqeSolicited;

  qp.datagrams->events_due.clear();
  if (port_down(qp.process->directory(), qp.context->device_index))
    return VendorError::none;  // lost on the way
  try {
    if (!ah->multicast)
      send_to_one(qp, address, request.remote_qpn, message);
    else if (request.remote_qpn == kMulticastQpn) {
      send_to_group(qp, address.grh.dgid, message);
      send_to_other_nodes(qp, address, message);
    }
  } catch (const std::bad_alloc&) {
    // Somebody was met for the first time, and there is no memory to know him by: lost on the way.
  }
  return VendorError::none;
}

bool must_wait(Qp& qp, const SendRequest& request) {
  Remote* const remote = qp.process->remote();
  const Ah* ah = request.ah;
  if (remote == nullptr || ah == nullptr || ah->multicast || ah->attr.is_global == 0) return false;
  if (const auto& found = qp.datagrams->targets.destination(ah->attr, request.remote_qpn).adapter) {
    // On this node there is nothing to wait for but a stream.
    return !found->is_within_reach() && remote->is_full(kThisNode, request.remote_qpn);
  }
  return remote->is_full(wire::NetAddress::of_gid(ah->attr.grh.dgid.raw), request.remote_qpn);
}

void raise_datagram_events(Qp& qp) {
  const NodeDirectory& directory = qp.process->directory();
  for (Destination* to : qp.datagrams->events_due) {
    const uint8_t due = std::exchange(to->event_due, uint8_t{0});
    if (to->completion_queue->channel == 0) continue;
    const HazardGuard guard(directory, qp.process->membership().slot(), to->adapter->slot());
    // The CQ may have gone meanwhile. One that has come in its place gets an event too many, which does no
    // harm.
    if (to->adapter->alive(directory) && to->completion_queue->alive.load(std::memory_order_acquire) != 0)
      raise_completion_event(*to->completion_queue, *to->adapter, due == 2);
  }
}

Delivery receive_remote_datagram(Qp& remote_requester, const RemoteDatagram& datagram, bool may_wait) {
  if (datagram.length < kGrhBytes || datagram.length > kGrhBytes + kMaxMtu) return Delivery::kDropped;
  Message message;
  message.source = datagram.source;
  message.qkey = datagram.qkey;
  message.immediate = datagram.immediate;
  message.length = datagram.length;
  message.solicited = (datagram.flags & kCqeSolicited) != 0;
  message.flags = static_cast<uint8_t>(kCqeReceive | kCqeFromShared | kCqeDatagram |
                                       (datagram.flags & (kCqeWithImmediate | kCqeSolicited)));
  message.may_wait = may_wait;
  std::memcpy(message.bytes, datagram.bytes, datagram.length);
  remote_requester.datagrams->events_due.clear();
  ibv_ah_attr address{};
  address.is_global = 1;
  address.grh.dgid = datagram.destination;
  Delivery delivery = Delivery::kDropped;
  try {
    if (datagram.target_qpn == kMulticastQpn)
      send_to_group(remote_requester, datagram.destination, message);
    else
      delivery = send_to_one(remote_requester, address, datagram.target_qpn, message);
  } catch (const std::bad_alloc&) {
  }
  raise_datagram_events(remote_requester);
  return delivery;
}

void keep_address(Qp& qp, SendRequest& kept) {
  if (kept.ah == nullptr) return;
  Ah& copy = qp.datagrams->kept[kept.number & (qp.sq.size() - 1)];
  copy = *kept.ah;
  kept.ah = &copy;
}

}  // namespace verbena
