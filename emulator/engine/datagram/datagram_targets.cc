// SPDX-License-Identifier: BSD-2-Clause
#include "engine/datagram/datagram_targets.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "adapter/clock.h"
#include "engine/rules/address_port.h"

namespace verbena {
namespace {

constexpr int kPatienceMs = 500;           // for a process that is met for the first time
constexpr int64_t kPause = 1'000'000'000;  // ns

bool receives_in(uint8_t state) {
  return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_SQE;
}

// Finds the queue pair with this number in the process that has it. False: there is none, or it cannot be
// reached.
bool find(Process& process, uint32_t slot, uint32_t slot_generation, uint32_t index, Destination* out) {
  std::shared_ptr<PeerAdapter> adapter;
  if (process.peers().get(process.membership(), slot, slot_generation, &adapter, {kPatienceMs}) != 0) {
    // Asking a stopped process takes time. Datagrams do not wait for it every time.
    out->ask_again_at = now_ns() + kPause;
    return false;
  }
  out->qp = adapter->view().qp(index);
  if (out->qp == nullptr || out->qp->in_use.load(std::memory_order_acquire) == 0) return false;
  out->index = index;
  out->incarnation = out->qp->incarnation;
  out->generation = 0;
  out->adapter = std::move(adapter);
  return true;
}

}  // namespace

bool port_down(const NodeDirectory& directory, uint32_t device, uint32_t port) {
  return (directory.header().ports_down.load(std::memory_order_relaxed) & port_bit(device, port)) != 0;
}

bool is_ready(Destination& to, const NodeDirectory& directory) {
  if (!to.adapter->alive(directory)) return false;
  const SharedQp& there = *to.qp;
  const ResponderState responder =
      ResponderState::unpack(there.responder_state.load(std::memory_order_acquire));
  const uint8_t port = QpPath::unpack(there.path.load(std::memory_order_relaxed)).port;
  if (!receives_in(responder.state) || port_down(directory, there.device, port)) return false;
  if (responder.generation == to.generation) return true;
  if (there.type != to.type || there.incarnation != to.incarnation) return false;
  if (to.port != 0 && to.port != port) return false;
  const SegmentView& view = to.adapter->view();
  SharedCq* cq = view.cq(there.recv_cq);
  if (cq == nullptr || cq->alive.load(std::memory_order_acquire) == 0) return false;
  to.completion_queue = cq;
  to.completions = CompletionRing::of(view, *cq, &to.known_head);
  if (to.completions.entries == nullptr) return false;
  SharedSrq* receives = there.srq != 0 ? view.srq(there.srq - 1) : nullptr;
  to.receives = receives != nullptr ? SharedReceiveRing::of(view, *receives) : SharedReceiveRing{};
  to.settled_until = 0;
  to.waited_in_vain = false;
  if (there.responder_state.load(std::memory_order_acquire) >> 8 != responder.generation) return false;
  to.generation = responder.generation;
  return true;
}

bool find_destination(Process& process, const MulticastMember& qp, Destination* out) {
  return find(process, qp.slot, qp.slot_generation, qp.qp_index, out) && out->incarnation == qp.incarnation;
}

DatagramTargets::DatagramTargets() : places_(static_cast<Place*>(std::calloc(kSets * kWays, sizeof(Place)))) {
  static_assert(alignof(Place) <= alignof(std::max_align_t));
  if (places_ == nullptr) throw std::bad_alloc();
}

DatagramTargets::~DatagramTargets() {
  for (size_t set = 0; set < kSets; ++set) {
    if (!sets_in_use_[set]) continue;
    for (Place* place = places_ + set * kWays; place != places_ + (set + 1) * kWays; ++place)
      if (place->used) place->destination().~Destination();
  }
  std::free(places_);
}

size_t DatagramTargets::Key::set() const {
  const uint64_t mixed = (gid[0] ^ gid[1] * 0x9e3779b97f4a7c15u ^ qpn) * 0x9e3779b97f4a7c15u;
  return static_cast<size_t>(mixed >> 56);
}

DatagramTargets::Key DatagramTargets::key_of(const ibv_ah_attr& address, uint32_t qpn) {
  Key key{{}, qpn, address.is_global != 0};
  if (key.global != 0)
    std::memcpy(key.gid, address.grh.dgid.raw, sizeof key.gid);
  else
    key.gid[0] = address.dlid;
  return key;
}

Destination& DatagramTargets::destination(const ibv_ah_attr& address, uint32_t qpn) {
  static_assert(kSets == 256);  // the number of values of Key::set()
  const Key key = key_of(address, qpn);
  if (last_ != nullptr && last_->key == key) return last_->destination();
  const size_t number = key.set();
  Place* set = places_ + number * kWays;
  Place* place = nullptr;
  for (size_t way = 0; way < kWays && place == nullptr; ++way)
    if (set[way].used && set[way].key == key) place = &set[way];
  if (place == nullptr) {
    for (size_t way = 0; way < kWays && place == nullptr; ++way)
      if (!set[way].used) place = &set[way];
    if (place == nullptr) {
      place = &set[next_way_++ % kWays];
      place->destination().~Destination();
    }
    sets_in_use_[number] = true;
    new (place->bytes) Destination;
    place->key = key;
    place->used = true;
  }
  last_ = place;
  return place->destination();
}

bool DatagramTargets::resolve(Process& process, const ibv_ah_attr& address, uint32_t qpn, Destination* to) {
  const NodeDirectory& directory = process.directory();
  to->adapter.reset();
  to->port = 0;
  if (to->ask_again_at != 0 && now_ns() < to->ask_again_at) return false;
  to->ask_again_at = 0;
  QpnEntry found;
  if (!directory.find_qpn(qpn, &found)) return false;
  const uint32_t generation = directory.slot(found.slot).generation.load(std::memory_order_acquire);
  if (!find(process, found.slot, generation, found.qp_index, to)) return false;
  if (to->qp->qpn == qpn && to->qp->device < directory.devices().count)
    to->port = find_port(address, directory.devices().devices[to->qp->device]);
  if (to->port != 0) return true;
  to->adapter.reset();
  return false;
}

std::vector<DatagramTargets::Member>& DatagramTargets::members(Process& process, const MulticastGid& gid) {
  auto found = std::find_if(groups_.begin(), groups_.end(),
                            [&](const Group& group) { return group.known && group.gid == gid; });
  Group& group = found != groups_.end() ? *found : groups_[next_group_++ % kGroups];
  const MulticastTable table(process.directory());
  const uint64_t version = table.version();
  if (found != groups_.end() && group.version == version &&
      (group.look_again_at == kEndOfTime || now_ns() < group.look_again_at))
    return group.members;
  group.known = false;  // until all members are found
  group.members.clear();
  group.gid = gid;
  group.version = version;
  group.look_again_at = kEndOfTime;
  for (const MulticastTable::Found& member : table.members(gid)) {
    auto to = std::make_unique<Destination>();
    const bool there = find_destination(process, member.member, to.get());
    if (to->ask_again_at != 0) group.look_again_at = to->ask_again_at;
    if (there) group.members.push_back({member, std::move(to)});
  }
  group.known = true;
  return group.members;
}

}  // namespace verbena
