// SPDX-License-Identifier: BSD-2-Clause
#include "engine/datagram.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "engine/address_handle.h"
#include "engine/clock.h"
#include "engine/completion.h"
#include "engine/key_errors.h"
#include "engine/psn.h"
#include "engine/requester.h"
#include "fabric/hazards.h"
#include "fabric/multicast_table.h"
#include "observe/log.h"

namespace verbena {
namespace {

constexpr uint32_t kMulticastQpn = 0xffffff;
constexpr uint32_t kOwnQkey = 0x80000000;
constexpr uint32_t kMaxMtu = 4096;
constexpr size_t kMaxDestinations = 1024;  // remembered at once
constexpr int kPatienceMs = 500;           // for a process that is met for the first time
constexpr int64_t kPause = 1'000'000'000;  // ns

bool receives_in(uint8_t state) {
  return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_SQE;
}

// A queue pair that messages go to, and everything that is touched there.
struct Destination {
  std::shared_ptr<PeerAdapter> adapter;
  SharedQp* qp = nullptr;
  uint32_t index = 0;
  uint32_t birth = 0;
  uint64_t generation = 0;  // of the gate, when the rest was found right; 0: never
  SharedReceiveRing receives;
  CompletionRing completions;
  std::atomic<uint64_t> known_head{0};
  SharedCq* completion_queue = nullptr;
  int64_t ask_again_at = 0;  // ns: its process has not answered, and is left alone until then
  uint8_t event_due = 0;     // 1: an entry was appended; 2: one that counts as solicited

  uint32_t room_in_entry() const { return completions.inline_size() - uint32_t{sizeof(DatagramSource)}; }
};

struct Key {
  ibv_gid gid;  // without a GRH: zeros and the LID
  uint32_t qpn;
  bool global;
  auto words() const {
    uint64_t raw[2];
    std::memcpy(raw, gid.raw, sizeof raw);
    return std::tuple(qpn, raw[1], raw[0], global);
  }
  bool operator<(const Key& other) const { return words() < other.words(); }
  bool operator==(const Key& other) const { return words() == other.words(); }
};

Key key_of(const ibv_ah_attr& address, uint32_t qpn) {
  Key key{{}, qpn, address.is_global != 0};
  if (key.global)
    key.gid = address.grh.dgid;
  else
    std::memcpy(key.gid.raw, &address.dlid, sizeof address.dlid);
  return key;
}

struct Group {
  uint64_t version = 0;  // of the table, when the members were looked up
  bool known = false;
  int64_t look_again_at = kEndOfTime;  // ns: the process of some member has not answered
  struct Member {
    MulticastTable::Found found;
    std::unique_ptr<Destination> destination;  // nullptr: it cannot be reached
  };
  std::vector<Member> members;
};

// One message, whole: the room for its GRH, and the bytes that the program gave.
struct Message {
  DatagramHeader header;
  DatagramSource source{};
  uint32_t qkey = 0;
  uint32_t immediate = 0;
  uint32_t length = 0;  // with the 40 bytes
  uint8_t flags = 0;    // CqeFlags
  bool solicited = false;
  uint8_t bytes[kGrhBytes + kMaxMtu];
};

}  // namespace

struct Datagrams {
  std::map<Key, Destination> destinations;
  std::map<MulticastGid, Group> groups;
  Destination* last = nullptr;  // who was sent to last
  Key last_key{};
  std::vector<Destination*> events_due;
  std::vector<Ah> kept;  // by place in the send queue
};

namespace {

void call_attention(Destination& to) {
  to.adapter->view().header().attention.store(1, std::memory_order_release);
  to.adapter->kick();
}

// Finds the queue pair with this number, whoever has it. False: nobody, or it cannot be reached.
bool find(Qp& qp, uint32_t slot, uint32_t slot_generation, uint32_t index, Destination* out) {
  Process& process = *qp.process;
  std::shared_ptr<PeerAdapter> adapter;
  if (process.peers().get(process.home(), slot, slot_generation, &adapter, kPatienceMs) != 0) {
    // Asking a stopped process takes its time; datagrams do not wait for it again and again.
    out->ask_again_at = now_ns() + kPause;
    return false;
  }
  out->qp = adapter->view().qp(index);
  if (out->qp == nullptr || out->qp->in_use.load(std::memory_order_acquire) == 0) return false;
  out->index = index;
  out->birth = out->qp->birth;
  out->generation = 0;
  out->adapter = std::move(adapter);
  return true;
}

bool port_down(const NodeDirectory& directory, uint32_t device) {
  return (directory.header().ports_down.load(std::memory_order_relaxed) >> (device & 31) & 1) != 0;
}

// On a visit: is it the queue pair we found, ready to receive datagrams? Looks everything up again when its
// gate shows another generation than the one before.
bool open(Destination& to, const NodeDirectory& directory) {
  if (!to.adapter->alive(directory)) return false;
  const SharedQp& there = *to.qp;
  const Gate gate = Gate::unpack(there.gate.load(std::memory_order_acquire));
  if (!receives_in(gate.state) || port_down(directory, there.device)) return false;
  if (gate.generation == to.generation) return true;
  if (there.type != IBV_QPT_UD || there.birth != to.birth) return false;
  const SegmentView& view = to.adapter->view();
  SharedCq* cq = view.cq(there.recv_cq);
  if (cq == nullptr || cq->alive.load(std::memory_order_acquire) == 0) return false;
  to.completion_queue = cq;
  to.completions = CompletionRing::of(view, *cq, &to.known_head);
  if (to.completions.entries == nullptr) return false;
  SharedSrq* receives = there.srq != 0 ? view.srq(there.srq - 1) : nullptr;
  to.receives = receives != nullptr ? SharedReceiveRing::of(view, *receives) : SharedReceiveRing{};
  if (there.gate.load(std::memory_order_acquire) >> 8 != gate.generation) return false;
  to.generation = gate.generation;
  return true;
}

// Puts the message where the receive request says. The keys of the request are checked now.
VendorError place(const Qp& from, Destination& to, const Message& message, const ReceiveWqe& wqe) {
  const SegmentView& view = to.adapter->view();
  iovec remote[PeerAdapter::kMaxRanges];
  size_t remotes = 0;
  uint32_t room = 0;
  const uint32_t count = std::min(wqe.sge_count, to.receives.max_sge);
  for (uint32_t i = 0; i < count && room < message.length && remotes < PeerAdapter::kMaxRanges; ++i) {
    const WqeSge sge = wqe.sge[i];
    if (sge.length == 0) continue;
    const Translation found = translate(view, sge.lkey, false, to.receives.shared->pd,
                                        MemoryUse::local_scatter, sge.address, sge.length);
    if (found.check != KeyCheck::kOk) return local_key_error(found.check);
    const uint32_t used = std::min(sge.length, message.length - room);
    remote[remotes++] = {reinterpret_cast<void*>(found.address), used};
    room += used;
  }
  if (room < message.length) return VendorError::receive_too_small;
  const iovec local{const_cast<uint8_t*>(message.bytes), message.length};
  const int error = to.adapter->write(from.process->directory(), &local, 1, remote, remotes);
  return error == 0 ? VendorError::none : VendorError::local_memory_gone;
}

// Appends the receive completion for `slot`. `landed`: the bytes are in it, or in the slot's landing buffer.
void complete(const Qp& from, Destination& to, const Message& message, uint32_t slot, VendorError error,
              bool landed) {
  const Claim claim = claim_completion(to.completions, from.process->home().worker());
  if (claim.entry == nullptr) {
    if (to.completions.ignores_overrun()) {
      // The completion is lost, and the message must not be: it cannot wait there for being polled.
      if (landed) place(from, to, message, to.receives.wqe(slot));
      return;
    }
    to.completion_queue->overrun.store(1, std::memory_order_release);
    call_attention(to);
    return;
  }
  const auto status = find_vendor_error(static_cast<uint32_t>(error))->status;
  Cqe& entry = *claim.entry;
  entry.qp_index = to.index;
  entry.qp_birth = to.birth;
  entry.index = slot;
  entry.byte_len = message.length;
  entry.immediate = message.immediate;
  entry.status = static_cast<uint8_t>(status);
  entry.opcode = IBV_WC_RECV & ~IBV_WC_RECV;
  entry.vendor_err = static_cast<uint8_t>(error);
  std::memcpy(entry.payload, &message.source, sizeof message.source);
  entry.flags = message.flags;
  if (landed && message.length <= to.room_in_entry()) {
    entry.flags |= kCqeInline;
    std::memcpy(entry.payload + sizeof message.source, message.bytes, message.length);
  }
  publish_completion(to.completions, claim, landed ? CqeKind::kLanded : CqeKind::kPublished);
  to.event_due = message.solicited || status != IBV_WC_SUCCESS ? 2 : 1;
}

// On a visit, and the destination is open.
void deliver(const Qp& from, Destination& to, const Message& message) {
  SharedQp& there = *to.qp;
  if (there.qkey.load(std::memory_order_relaxed) != message.qkey) {
    there.qkey_violations.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  uint32_t slot = 0;
  bool limit_reached = false;
  if (!to.receives.take(from.process->home().worker(), &slot, &limit_reached, message.length)) {
    there.dropped.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  if (limit_reached) call_attention(to);
  there.rq_taken.fetch_add(1, std::memory_order_relaxed);
  const ReceiveWqe& wqe = to.receives.wqe(slot);
  const uint32_t epoch = to.adapter->view().header().mr_epoch.load(std::memory_order_acquire) & 0xffffff;
  const bool lands = message.length <= kLandingSize && wqe.epoch == epoch && epoch != ReadyWord::kNeverValid;
  if (lands && message.length > to.room_in_entry())
    std::memcpy(to.receives.landing(slot), message.bytes, message.length);
  const VendorError error = lands ? VendorError::none : place(from, to, message, wqe);
  if (error != VendorError::none) {
    // Before its completion can be polled: whoever polls it finds the QP in ERR.
    there.sticky.fetch_or(kStickyFatal, std::memory_order_acq_rel);
    complete(from, to, message, slot, error, false);
    call_attention(to);
    return;
  }
  complete(from, to, message, slot, VendorError::none, lands);
  there.requests_in.fetch_add(1, std::memory_order_relaxed);
  there.bytes_in.fetch_add(message.length, std::memory_order_relaxed);
}

// The unicast destination, or nullptr: nobody. Remembered from one message to the next.
Destination* destination_of(Qp& qp, const ibv_ah_attr& address, uint32_t qpn) {
  Datagrams& own = *qp.datagrams;
  const Key key = key_of(address, qpn);
  if (own.last != nullptr && own.last_key == key) return own.last;
  own.last = nullptr;
  auto known = own.destinations.find(key);
  if (known == own.destinations.end()) {
    if (own.destinations.size() >= kMaxDestinations) own.destinations.clear();
    known = own.destinations.try_emplace(key).first;
  }
  own.last = &known->second;
  own.last_key = key;
  return own.last;
}

// Finds (again) who has the number, and whether the address leads there.
bool resolve(Qp& qp, const ibv_ah_attr& address, uint32_t qpn, Destination* to) {
  const NodeDirectory& directory = qp.process->directory();
  to->adapter.reset();
  if (to->ask_again_at != 0 && now_ns() < to->ask_again_at) return false;
  to->ask_again_at = 0;
  QpnEntry found;
  if (!directory.find_qpn(qpn, &found)) return false;
  const uint32_t generation = directory.slot(found.slot).generation.load(std::memory_order_acquire);
  if (!find(qp, found.slot, generation, found.qp_index, to)) return false;
  if (to->qp->qpn == qpn && to->qp->device < directory.devices().count &&
      leads_to(address, directory.devices().devices[to->qp->device]))
    return true;
  to->adapter.reset();
  return false;
}

void send_to_one(Qp& qp, const ibv_ah_attr& address, uint32_t qpn, const Message& message) {
  const NodeDirectory& directory = qp.process->directory();
  Destination* to = destination_of(qp, address, qpn);
  for (bool fresh = false;; fresh = true) {
    // What is there may have gone, and another may have come, since we were there last.
    if ((fresh || !to->adapter) && !resolve(qp, address, qpn, to)) return;
    const Visit visit(directory, qp.process->home().slot(), to->adapter->slot());
    if (open(*to, directory)) {
      deliver(qp, *to, message);
      if (to->event_due != 0) qp.datagrams->events_due.push_back(to);
      return;
    }
    if (fresh) return;
  }
}

Group& group_of(Qp& qp, const MulticastGid& gid) {
  Datagrams& own = *qp.datagrams;
  const MulticastTable table(qp.process->directory());
  if (own.groups.size() >= kMaxDestinations && !own.groups.contains(gid)) own.groups.clear();
  Group& group = own.groups[gid];
  const uint64_t version = table.version();
  if (group.known && group.version == version &&
      (group.look_again_at == kEndOfTime || now_ns() < group.look_again_at))
    return group;
  group.known = true;
  group.version = version;
  group.look_again_at = kEndOfTime;
  group.members.clear();
  for (const MulticastTable::Found& found : table.members(gid)) {
    auto to = std::make_unique<Destination>();
    const bool there =
        find(qp, found.member.slot, found.member.slot_generation, found.member.qp_index, to.get()) &&
        to->birth == found.member.birth;
    if (to->ask_again_at != 0) group.look_again_at = to->ask_again_at;
    if (there) group.members.push_back({found, std::move(to)});
  }
  return group;
}

void send_to_group(Qp& qp, const ibv_gid& gid, const Message& message) {
  const NodeDirectory& directory = qp.process->directory();
  const MulticastTable table(directory);
  MulticastGid name;
  std::memcpy(name.data(), gid.raw, sizeof gid.raw);
  for (const Group::Member& member : group_of(qp, name).members) {
    Destination& to = *member.destination;
    const Visit visit(directory, qp.process->home().slot(), to.adapter->slot());
    // Looked at on the visit: whoever detaches waits for it.
    if (!table.is_still(member.found) || !open(to, directory)) continue;
    deliver(qp, to, message);
    if (to.event_due != 0) qp.datagrams->events_due.push_back(&to);
  }
}

// Collects the program's bytes behind the room for the header. Its memory stays registered meanwhile.
VendorError gather(Qp& qp, const SendOperation& operation, const SendRequest& request, Message* message) {
  const uint32_t home = qp.process->home().slot();
  const Visit visit(qp.process->directory(), home, home);
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

std::shared_ptr<Datagrams> make_datagrams(const Qp&) { return std::make_shared<Datagrams>(); }

VendorError send_datagram(Qp& qp, const SendOperation& operation, const SendRequest& request) {
  if (request.length > std::min(qp.mtu, kMaxMtu)) return VendorError::message_too_long;
  const Ah* ah = request.ah;
  if (ah == nullptr) return VendorError::malformed_request;
  if (ah->pd != qp.pd) return VendorError::address_handle_other_pd;
  const ibv_ah_attr& address = ah->attr;

  Message message;
  if (VendorError error = gather(qp, operation, request, &message); error != VendorError::none) return error;
  message.header = ah->header;
  message.header.set_length(request.length, operation.carries_immediate);
  std::memcpy(message.bytes, message.header.bytes.data(), kGrhBytes);
  const auto lid = static_cast<uint16_t>(qp.context->device->lid);
  const uint8_t with_grh = address.is_global != 0 ? DatagramSource::kWithGrh : uint8_t{0};
  message.source = {qp.shared->qpn, lid, address.sl, with_grh};
  message.qkey = (request.remote_qkey & kOwnQkey) != 0 ? qp.attr.qkey : request.remote_qkey;
  message.immediate = request.immediate;
  message.length = kGrhBytes + request.length;
  message.solicited = (request.flags & IBV_SEND_SOLICITED) != 0;
  message.flags = kCqeReceive | kCqeFromShared | kCqeDatagram;
  if (operation.carries_immediate) message.flags |= kCqeWithImmediate;
  if (message.solicited) message.flags |= kCqeSolicited;

  qp.datagrams->events_due.clear();
  if (port_down(qp.process->directory(), qp.context->device_index)) return VendorError::none;  // lost on the way
  if (!ah->multicast)
    send_to_one(qp, address, request.remote_qpn, message);
  else if (request.remote_qpn == kMulticastQpn)
    send_to_group(qp, address.grh.dgid, message);
  return VendorError::none;
}

void raise_datagram_events(Qp& qp) {
  const NodeDirectory& directory = qp.process->directory();
  for (Destination* to : qp.datagrams->events_due) {
    const uint8_t due = std::exchange(to->event_due, uint8_t{0});
    if (to->completion_queue->channel == 0) continue;
    const Visit visit(directory, qp.process->home().slot(), to->adapter->slot());
    // The CQ may have gone meanwhile. One that has come in its place gets an event too many, which does no
    // harm.
    if (to->adapter->alive(directory) && to->completion_queue->alive.load(std::memory_order_acquire) != 0)
      raise_completion_event(*to->completion_queue, *to->adapter, due == 2);
  }
}

void keep_address(Qp& qp, SendRequest& kept) {
  if (kept.ah == nullptr) return;
  std::vector<Ah>& copies = qp.datagrams->kept;
  if (copies.empty()) copies.resize(qp.sq.size());
  Ah& copy = copies[kept.number & (qp.sq.size() - 1)];
  copy = *kept.ah;
  kept.ah = &copy;
}

}  // namespace verbena
