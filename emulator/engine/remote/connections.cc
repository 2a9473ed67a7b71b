// SPDX-License-Identifier: BSD-2-Clause
#include "engine/remote/connections.h"

#include <errno.h>

#include <algorithm>
#include <cstring>

#include "adapter/clock.h"
#include "engine/objects/context.h"
#include "engine/objects/process.h"
#include "engine/objects/qp.h"
#include "engine/remote/within_node.h"
#include "engine/requester/requester.h"
#include "engine/rules/address_port.h"
#include "observe/log.h"

namespace verbena {
namespace {

using wire::NetAddress;
using wire::Target;

// The connection listener tries one request for this long. A queue pair that still needs the connection then
// requests it again.
constexpr int64_t kConnectPatience = 2'000'000'000;
// A queue pair whose peer was not found does not ask again sooner.
constexpr int64_t kAskAgain = 20'000'000;
// Of two processes the one with the lower address connects. The other one connects if nothing has come for
// this long.
constexpr int64_t kOtherBegins = 50'000'000;
// An own connection that the other end has accepted gets so much longer until the other's is preferred.
constexpr int64_t kReplyComes = 500'000'000;
// Two processes that connect to each other at the same moment come to have two connections within this time.
// A later connection is from a process that has lost the earlier one.
constexpr int64_t kSameMoment = 2'000'000'000;
// Of requests to one address: it belongs to one node, and a node has no more processes.
constexpr size_t kMostOfOneAddress = kMaxSlots;

// Asks a process which process of its node has the queue pair. Is the path sound? If no reply comes then, the
// process that would reply is not scheduled.
bool ask(RemotePeer& near, uint32_t qpn) {
  const wire::QueryHead head{sizeof head, wire::FrameKind::kQuery, {}, qpn, 0};
  std::lock_guard out(near.out_mutex);
  if (std::byte* const at = append_request(near, sizeof head); at != nullptr) {
    std::memcpy(at, &head, sizeof head);
    ++near.asked;
  }
  flush(near);
  return is_path_sound(near);
}

// Under send_lock: the peer has a connection, or has lost it.
void resume(Process& process, Qp& qp) {
  if (qp.sq_next != qp.sq_posted && progress_send_queue(qp, false) != kEndOfTime)
    process.scheduler().add(&qp);
}

}  // namespace

Connections::Connections(Process& process, const wire::ProcessId& self, const Connector& connector,
                         PathOwner& owner)
    : process_(process), self_(self), connector_(connector), owner_(owner), peers_(process) {}

// ---- paths ----

bool Connections::is_own(const ibv_ah_attr& address) const {
  const DeviceTable& devices = process_.directory().devices();
  for (uint32_t i = 0; i < std::min(devices.count, kMaxDevices); ++i)
    if (find_port(address, devices.devices[i]) != 0) return true;
  return false;
}

std::shared_ptr<Transport> Connections::path_to(const Qp& qp, const ibv_qp_attr& attr) {
  if (!connector_.leads_out || attr.ah_attr.is_global == 0 || is_own(attr.ah_attr)) return nullptr;
  auto path = std::make_shared<RemotePath>();
  path->owner = &owner_;
  path->to = NetAddress::of_gid(attr.ah_attr.grh.dgid.raw);
  if (!path->to.is_reachable()) return nullptr;
  const DeviceDescription& device = *qp.context->device;
  path->from = NetAddress::of_gid(device.port(attr.port_num)
                                      .gids[std::min<uint32_t>(attr.ah_attr.grh.sgid_index, kMaxGids - 1)]
                                      .raw.data());
  path->qpn = attr.dest_qp_num;
  path->path_generation = next_path_generation_.fetch_add(1, std::memory_order_relaxed);
  return path;
}

std::shared_ptr<Transport> Connections::path_within(const PeerAdapter& to, uint32_t qpn) {
  auto path = std::make_shared<RemotePath>();
  path->owner = &owner_;
  path->process = {self_.node, to.slot(), to.generation()};
  path->qpn = qpn;
  path->path_generation = next_path_generation_.fetch_add(1, std::memory_order_relaxed);
  return path;
}

// ---- routes ----

void Connections::set_peer(Route& route, const std::shared_ptr<RemotePeer>& peer) {
  if (route.peer == peer) return;
  if (peer) RemotePeers::hold(*peer);
  if (route.peer) peers_.release(*route.peer);
  route.peer = peer;
}

void Connections::add_route(Qp& qp, const std::shared_ptr<RemotePath>& path) {
  Route& route = routes_[qp.shared->qpn];
  set_peer(route, nullptr);
  route.qp = &qp;
  route.path = path;
  route.asked_at = 0;
  route.since = now_ns();
  if (path->to == kThisNode) set_peer(route, peers_.of(path->process));
}

void Connections::remove_route(const Qp& qp) {
  const auto found = routes_.find(qp.shared->qpn);
  if (found == routes_.end() || found->second.qp != &qp) return;
  set_peer(found->second, nullptr);
  routes_.erase(found);
}

bool Connections::begins(const RemotePath& path) const {
  return path.to == kThisNode ? connects_within_node(self_, path.process) : path.from <= path.to;
}

Route* Connections::find_route(uint32_t qpn) {
  const auto found = routes_.find(qpn);
  return found != routes_.end() ? &found->second : nullptr;
}

bool Connections::has_routes_to(const RemotePeer& peer) const {
  return std::any_of(routes_.begin(), routes_.end(),
                     [&](const auto& entry) { return entry.second.peer.get() == &peer; });
}

void Connections::bind(Route& route, const std::shared_ptr<RemotePeer>& peer) {
  set_peer(route, peer);
  Qp& qp = *route.qp;
  qp.send_lock.lock();
  if (qp.transport == route.path.get()) {
    route.path->peer = peer;
    resume(process_, qp);
  }
  qp.send_lock.unlock();
}

// ---- seeking ----

void Connections::seek(uint32_t qpn) {
  {
    std::lock_guard lock(seek_mutex_);
    if (std::find(seeks_.begin(), seeks_.end(), qpn) != seeks_.end()) return;
    seeks_.push_back(qpn);
  }
  seeking_.store(true, std::memory_order_release);
}

void Connections::serve_seeks(int64_t now) {
  if (!seeking_.exchange(false, std::memory_order_acq_rel)) return;
  std::vector<uint32_t> seeks;
  {
    std::lock_guard lock(seek_mutex_);
    seeks.swap(seeks_);
  }
  for (const uint32_t qpn : seeks)
    if (Route* const route = find_route(qpn); route != nullptr) find_peer(*route, now);
}

void Connections::find_peer(Route& route, int64_t now) {
  RemotePath& path = *route.path;
  const bool other_may_begin = now < route.since + kOtherBegins;
  if (route.peer) {
    if (route.peer->connected.load(std::memory_order_relaxed))
      bind(route, route.peer);
    else if (!route.peer->gone && now >= route.asked_at + kAskAgain)
      route.asked_at = now,
      request_connection(path.to, path.from, Target::of_process(route.peer->id), 0, route.peer);
    return;
  }
  if (route.asked_at != 0 && now < route.asked_at + kAskAgain) return seek(route.qp->shared->qpn);
  const std::shared_ptr<RemotePeer> near = peers_.connected_to(path.to);
  if (!near && path.to < path.from && other_may_begin) return seek(route.qp->shared->qpn);
  route.asked_at = now;
  if (near)
    path.is_called.store(ask(*near, path.qpn), std::memory_order_relaxed);
  else
    request_connection(path.to, path.from, Target::queue_pair(path.qpn), path.qpn, nullptr);
}

void Connections::serve(int64_t now) {
  if (seeks()) serve_seeks(now);
  send_waiting_datagrams(now);
}

bool Connections::send_waiting_datagrams(int64_t now) {
  for (const DatagramTo& to : datagrams_.send_waiting(now)) {
    if (to.address == kThisNode)
      request_connection_within(Target::queue_pair(to.qpn));
    else if (const std::shared_ptr<RemotePeer> near = peers_.connected_to(to.address))
      ask(*near, to.qpn);
    else
      request_connection(to.address, to.from, Target::queue_pair(to.qpn), to.qpn, nullptr);
  }
  return datagrams_.has_waiting();
}

void Connections::pass_last_datagrams() {
  if (!datagrams_.has_waiting()) return;
  for (const auto& [qpn, frames] : datagrams_.take_within_node()) {
    const wire::ProcessId id = process_with(qpn);
    const int error =
        id.somebody() ? pass_datagrams_within_node(process_.membership(), self_, id, frames) : ENOENT;
    if (error != 0)
      VERBENA_INFO("the last datagrams to QP 0x%06x of this node are lost: errno %d", qpn, error);
  }
}

// The process of this node that has the queue pair; none (somebody()) has it.
wire::ProcessId Connections::process_with(uint32_t qpn) const {
  const NodeDirectory& directory = process_.directory();
  QpnEntry found;
  if (!directory.find_qpn(qpn, &found)) return {};
  return {self_.node, found.slot, directory.slot(found.slot).generation.load(std::memory_order_acquire)};
}

// Does a route or a datagram wait for the process that has the queue pair?
bool Connections::is_wanted(const NetAddress& at, uint32_t qpn) {
  for (const auto& [own, route] : routes_)
    if (!route.peer && route.path->qpn == qpn && route.path->to == at) return true;
  return !locations_.connected(at, qpn) && datagrams_.waits_for(at, qpn);
}

void Connections::located(RemotePeer& by, const wire::WhereaboutsHead& head) {
  // A process speaks for its own node only, and only when asked: each process that it names will be connected
  // to.
  if (head.node != by.id.node || by.asked == 0) return;
  --by.asked;
  if (head.generation == 0) {
    for (auto& [qpn, route] : routes_)
      if (route.path->qpn == head.qpn && route.path->to == by.address)
        route.path->is_called.store(false, std::memory_order_relaxed);
    datagrams_.drop(by.address, head.qpn);
    return;
  }
  if (!is_wanted(by.address, head.qpn)) return;
  const wire::ProcessId id{head.node, head.slot, head.generation};
  const std::shared_ptr<RemotePeer> peer = peers_.of(id);
  const int64_t now = now_ns();
  for (auto& [qpn, route] : routes_) {
    if (route.peer || route.path->qpn != head.qpn || route.path->to != by.address) continue;
    set_peer(route, peer);
    route.asked_at = 0;
    find_peer(route, now);
  }
  locations_.note(by.address, head.qpn, peer);
  if (!send_waiting_datagrams(now) || peer->connected.load(std::memory_order_relaxed)) return;
  request_connection(by.address, by.own_address, Target::of_process(id), 0, peer);
}

// ---- requests for connections ----

void Connections::request_connection(const NetAddress& to, const NetAddress& from, const Target& target,
                                     uint32_t qpn, const std::shared_ptr<RemotePeer>& peer) {
  if (to == kThisNode) return request_connection_within(target);
  size_t others = 0;
  for (const ConnectRequest& request : connect_requests_) {
    if (request.to == to && (request.peer == peer || (!request.peer && !peer))) return;
    others += request.to == to;
  }
  if (connector_.connect == nullptr || others >= kMostOfOneAddress) return;
  const int64_t now = now_ns();
  const uint64_t request_id =
      connector_.connect(connector_.context, to, from, target, now + kConnectPatience);
  if (peer) RemotePeers::hold(*peer);
  connect_requests_.push_back({request_id, to, qpn, peer, now});
  publish();
}

// The other process may be about to connect to this one, or be asked by it to connect: one of the two makes
// the connection, under its progress lock.
void Connections::request_connection_within(const Target& target) {
  const bool is_qp = target.kind == wire::TargetKind::kQueuePair;
  const wire::ProcessId id = is_qp ? process_with(target.number) : target.process;
  if (!id.somebody()) return;
  const std::shared_ptr<RemotePeer> peer = peers_.of(id);
  if (is_qp) locations_.note(kThisNode, target.number, peer);
  if (peer->connected.load(std::memory_order_relaxed)) return;
  wire::EstablishedConnection connection;
  const bool connects = connects_within_node(self_, id);
  const int error = connects ? connect_within_node(process_.membership(), self_, id, &connection)
                             : ask_within_node(process_.membership(), self_, id);
  if (error == 0 && connects) {
    if (may_enter(connection)) admit(connection);
    return;
  }
  if (error == 0) return note_taken(*peer, true);
  VERBENA_INFO("no connection to process %u of this node: errno %d", id.slot, error);
  if (error == ENOENT || error == ECONNREFUSED) peer->gone = true;
}

void Connections::connect_as_asked(const wire::ProcessId& by) {
  if (connects_within_node(self_, by)) request_connection_within(Target::of_process(by));
}

void Connections::forget_request(const ConnectRequest& request) {
  if (request.peer) peers_.release(*request.peer);
}

// The lower process begins, as may_enter() prefers. A request without a process may lead to this one.
bool Connections::prefers_own(const wire::EstablishedConnection& arriving, int64_t now) const {
  if (!(self_ < arriving.peer)) return false;
  return std::any_of(connect_requests_.begin(), connect_requests_.end(), [&](const ConnectRequest& request) {
    return request.to == arriving.peer_address && (!request.peer || request.peer->id == arriving.peer) &&
           now < request.since + (request.is_taken ? kReplyComes : kOtherBegins);
  });
}

bool Connections::may_enter(const wire::EstablishedConnection& arrived) {
  std::erase_if(connect_requests_, [&](const ConnectRequest& request) {
    if (arrived.request_id == 0 || request.request_id != arrived.request_id) return false;
    forget_request(request);
    return true;
  });
  bool is_refused = peers_.has_enough_of(arrived);
  if (!is_refused) {
    const RemotePeer& peer = *peers_.of(arrived.peer);
    // Of two connections the one begun by the lower process stays. Both processes come to that result.
    const bool is_begun_by_lower = arrived.begun_here == (self_ < arrived.peer);
    is_refused = peer.connected.load(std::memory_order_relaxed) && arrived.begun_here != peer.begun_here &&
                 !is_begun_by_lower && now_ns() < peer.since + kSameMoment;
  }
  if (is_refused) close_connection(arrived.fd);
  return !is_refused;
}

void Connections::admit(const wire::EstablishedConnection& arrived) {
  const std::shared_ptr<RemotePeer> peer = peers_.of(arrived.peer);
  peers_.attach(*peer, arrived);
  if (peer->address == kThisNode)
    note_taken(*peer, false);
  else
    note_taken(peer->address, false);
  publish();
  VERBENA_INFO("connected to process %u of %s", arrived.peer.slot, peer->address.text().c_str());
  const bool found_qp = arrived.begun_here && arrived.target.kind == wire::TargetKind::kQueuePair;
  if (found_qp) locations_.note(peer->address, arrived.target.number, peer);
  for (auto& [qpn, route] : routes_) {
    if (route.path->to != peer->address) continue;
    if (route.peer == peer || (!route.peer && found_qp && route.path->qpn == arrived.target.number))
      bind(route, peer);
    else if (!route.peer)
      route.asked_at = 0, seek(qpn);
  }
  const int64_t now = now_ns();
  serve_seeks(now);
  datagrams_.look_again_for(peer->address);
  send_waiting_datagrams(now);
}

void Connections::failed(uint64_t request_id, wire::Refusal refusal) {
  const auto found =
      std::find_if(connect_requests_.begin(), connect_requests_.end(),
                   [&](const ConnectRequest& request) { return request.request_id == request_id; });
  if (found == connect_requests_.end()) return;
  const ConnectRequest request = *found;
  connect_requests_.erase(found);
  forget_request(request);
  publish();
  // kSilent, kBusy: the machine has accepted the connection, but no process there was scheduled to reply. It
  // is tried again.
  if (refusal != wire::Refusal::kSilent && refusal != wire::Refusal::kBusy) note_taken(request.to, false);
  VERBENA_INFO("no connection to %s: %s", request.to.text().c_str(), wire::words(refusal));
  // The process that had the numbers has ended. Processes that come after it are not meant.
  if (refusal != wire::Refusal::kNobody) return;
  if (request.peer)
    request.peer->gone = true;
  else
    datagrams_.drop(request.to, request.qpn);
}

void Connections::taken(uint64_t request_id) {
  for (ConnectRequest& request : connect_requests_) {
    if (request.request_id != request_id) continue;
    request.is_taken = true;
    note_taken(request.to, true);
  }
}

void Connections::note_taken(const NetAddress& to, bool taken) {
  for (auto& [qpn, route] : routes_)
    if (route.path->to == to) route.path->is_called.store(taken, std::memory_order_relaxed);
}

void Connections::note_taken(const RemotePeer& peer, bool taken) {
  for (auto& [qpn, route] : routes_)
    if (route.peer.get() == &peer) route.path->is_called.store(taken, std::memory_order_relaxed);
}

void Connections::lose(RemotePeer& peer) {
  peers_.detach(peer);
  VERBENA_INFO("connection to process %u of %s has ended", peer.id.slot, peer.address.text().c_str());
  for (auto& [qpn, route] : routes_) {
    if (route.peer.get() != &peer) continue;
    route.asked_at = 0;
    route.qp->send_lock.lock();
    if (route.qp->transport == route.path.get()) resume(process_, *route.qp);
    route.qp->send_lock.unlock();
  }
  publish();
}

// A program that polls looks at the network while a connection is requested, too: it gives its processor away
// after a while, perhaps to the process that would reply (EmptyPolls, progress_policy.h).
void Connections::publish() {
  const bool active = peers_.any_connected();
  active_.store(active, std::memory_order_release);
  process_.scheduler().set_network_active(active || !connect_requests_.empty());
}

}  // namespace verbena
