// SPDX-License-Identifier: BSD-2-Clause
#include "engine/remote/remote.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "adapter/clock.h"
#include "engine/datagram/address_handle.h"
#include "engine/objects/context.h"
#include "engine/objects/process.h"
#include "engine/objects/qp.h"
#include "engine/remote/remote_requester.h"
#include "engine/requester/requester.h"
#include "observe/log.h"

namespace verbena {
namespace {

using wire::NetAddress;
using wire::Target;

// So long the connection listener tries one call; who still wants to be connected then calls again.
constexpr int64_t kConnectPatience = 2'000'000'000;
// A queue pair that found nobody does not ask again sooner.
constexpr int64_t kAskAgain = 20'000'000;
// Of two that are connected the one with the lower address calls. The other one does so when it was not
// called for so long.
constexpr int64_t kCallers = 50'000'000;
// Two processes that call each other at the same moment come to have two connections within such a time. A
// call that comes later is by somebody who has lost the one there was.
constexpr int64_t kSameMoment = 2'000'000'000;
// An address is one node's, and a node has no more processes.
constexpr size_t kMostOfOneAddress = kMaxSlots;
// What is in flight is looked at this often, deadline or not.
constexpr int64_t kLongestTick = 10'000'000, kShortestTick = 1'000'000;

}  // namespace

Remote::Remote(Process& process, const wire::ProcessId& self, Connector caller)
    : process_(process), self_(self), connector_(caller) {
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  outer_ = epoll_create1(EPOLL_CLOEXEC);
  arm(true);
}

Remote::~Remote() {
  // Queue pairs that the program has left keep what they know of their peers; the connections end now.
  for (const std::shared_ptr<RemotePeer>& peer : peers_) {
    std::lock_guard out(peer->out_mutex);
    peer->connected.store(false, std::memory_order_release);
    if (peer->fd >= 0) close_connection(std::exchange(peer->fd, -1));
  }
  if (outer_ >= 0) syscall(SYS_close, outer_);
  if (epoll_ >= 0) syscall(SYS_close, epoll_);
}

void Remote::arm(bool armed) {
  if (armed == armed_) return;
  armed_ = armed;
  epoll_event event{};
  event.events = EPOLLIN;
  syscall(SYS_epoll_ctl, outer_, armed ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, epoll_, &event);
}

bool Remote::is_own(const ibv_ah_attr& address) const {
  const DeviceTable& devices = process_.directory().devices();
  for (uint32_t i = 0; i < std::min(devices.count, kMaxDevices); ++i)
    if (leads_to(address, devices.devices[i])) return true;
  return false;
}

// ---- queue pairs ----------------------------------------------------------------------------------------

std::shared_ptr<Transport> Remote::path_to(const Qp& qp, const ibv_qp_attr& attr) {
  if (!connector_.leads_out || attr.ah_attr.is_global == 0 || is_own(attr.ah_attr)) return nullptr;
  auto path = std::make_shared<RemotePath>();
  path->remote = this;
  path->to = NetAddress::of_gid(attr.ah_attr.grh.dgid.raw);
  if (!path->to.is_reachable()) return nullptr;
  const DeviceDescription& device = *qp.context->device;
  path->from = NetAddress::of_gid(
      device.gids[std::min<uint32_t>(attr.ah_attr.grh.sgid_index, kMaxGids - 1)].raw.data());
  path->qpn = attr.dest_qp_num;
  path->path_generation = next_path_generation_.fetch_add(1, std::memory_order_relaxed);
  return path;
}

void Remote::connect(Qp& qp, const std::shared_ptr<Transport>& transport) {
  const auto path = std::static_pointer_cast<RemotePath>(transport);
  {
    std::lock_guard progress_lock(progress_mutex_);
    Route& route = routes_[qp.shared->qpn];
    route = {};
    route.qp = &qp;
    route.path = path;
    route.since = now_ns();
    if (path->to == kThisNode) route.peer = peer_of(path->process);
  }
  // One of the two begins, so that there are not two connections; the other one calls when it has to.
  const bool begins = path->to == kThisNode ? self_ < path->process : path->from <= path->to;
  if (qp.type != IBV_QPT_XRC_RECV && begins) {
    seek(qp.shared->qpn);
    process_.membership().kick();
  }
}

void Remote::forget(Qp& qp) {
  flush_all();
  {
    std::lock_guard progress_lock(progress_mutex_);
    if (const auto found = routes_.find(qp.shared->qpn); found != routes_.end() && found->second.qp == &qp)
      routes_.erase(found);
    for (const std::shared_ptr<RemotePeer>& peer : peers_) {
      if (peer->bulk_in.is_answer && peer->bulk_in.answer.target_qpn == qp.shared->qpn)
        peer->bulk_in.is_answer = false;
      std::erase_if(peer->remote_requesters, [&](const auto& entry) {
        if (entry.second->target_qpn() != qp.shared->qpn) return false;
        let_go(*peer, *entry.second);
        return true;
      });
    }
  }
  std::lock_guard lock(watch_mutex_);
  std::erase(watched_, &qp);
}

void Remote::seek(uint32_t qpn) {
  {
    std::lock_guard lock(seek_mutex_);
    if (std::find(seeks_.begin(), seeks_.end(), qpn) != seeks_.end()) return;
    seeks_.push_back(qpn);
  }
  seeking_.store(true, std::memory_order_release);
}

void Remote::watch(Qp& qp) {
  {
    std::lock_guard lock(watch_mutex_);
    watched_.push_back(&qp);
  }
  keep_ticking();
}

// The service thread comes again soon, without being woken.
void Remote::keep_ticking() {
  if (!ticking_.exchange(true, std::memory_order_acq_rel)) process_.membership().kick();
}

int64_t Remote::check_deadlines(int64_t now) {
  std::lock_guard lock(watch_mutex_);
  int64_t next = kEndOfTime;
  std::erase_if(watched_, [&](Qp* qp) {
    if (!qp->send_lock.try_lock()) {
      next = std::min(next, now + kShortestTick);
      return false;
    }
    RemotePath* const path = path_of(*qp);
    const int64_t wanted = path != nullptr ? check_deadline(*qp, now) : kEndOfTime;
    if (wanted == kEndOfTime && path != nullptr) path->is_watched = false;
    qp->send_lock.unlock();
    next = std::min(next, wanted);
    return wanted == kEndOfTime;
  });
  if (watched_.empty()) {
    if (!lingered_.load(std::memory_order_relaxed)) ticking_.store(false, std::memory_order_release);
    return kEndOfTime;
  }
  return std::clamp(next, now + kShortestTick, now + kLongestTick);
}

// ---- whom we are connected to -----------------------------------------------------------------------------

std::shared_ptr<RemotePeer> Remote::peer_of(const wire::ProcessId& id) {
  for (const std::shared_ptr<RemotePeer>& peer : peers_)
    if (peer->id == id) return peer;
  auto peer = std::make_shared<RemotePeer>(process_, id);
  peer->epoll = epoll_;
  peers_.push_back(peer);
  return peer;
}

// Somebody who has the key gives himself more names than there can be.
bool Remote::has_enough_of(const wire::EstablishedConnection& arrived) const {
  size_t others = 0;
  for (const std::shared_ptr<RemotePeer>& peer : peers_)
    others += peer->address == arrived.peer_address && peer->id != arrived.peer &&
              peer->connected.load(std::memory_order_relaxed);
  if (others < kMostOfOneAddress) return false;
  VERBENA_WARN("refused process %u of %s: %zu processes of that address are connected, as many as a node has",
               arrived.peer.slot, arrived.peer_address.text().c_str(), others);
  return true;
}

std::shared_ptr<RemotePeer> Remote::connected_to(const NetAddress& address) {
  for (const std::shared_ptr<RemotePeer>& peer : peers_)
    if (peer->address == address && peer->connected.load(std::memory_order_relaxed)) return peer;
  return nullptr;
}

void Remote::request_connection(const NetAddress& to, const NetAddress& from, const Target& target,
                                uint32_t qpn, const std::shared_ptr<RemotePeer>& peer) {
  if (to == kThisNode) return request_connection_within(target);
  size_t others = 0;
  for (const ConnectRequest& request : connect_requests_) {
    if (request.to == to && (request.peer == peer || (!request.peer && !peer))) return;
    others += request.to == to;
  }
  if (connector_.connect == nullptr || others >= kMostOfOneAddress) return;
  const uint64_t request_id =
      connector_.connect(connector_.context, to, from, target, now_ns() + kConnectPatience);
  connect_requests_.push_back({request_id, to, qpn, peer});
  publish();
}

void Remote::find_peer(Route& route, int64_t now) {
  if (route.peer) {
    if (route.peer->connected.load(std::memory_order_relaxed))
      bind(route, route.peer);
    else if (route.path->to == kThisNode && route.path->process < self_ && now < route.since + kCallers)
      seek(route.qp->shared->qpn);
    else if (!route.peer->gone && now >= route.asked_at + kAskAgain)
      route.asked_at = now,
      request_connection(route.path->to, route.path->from, Target::of_process(route.peer->id), 0, route.peer);
    return;
  }
  if (route.asked_at != 0 && now < route.asked_at + kAskAgain) {
    seek(route.qp->shared->qpn);
    return;
  }
  const std::shared_ptr<RemotePeer> near = connected_to(route.path->to);
  if (!near && route.path->to < route.path->from && now < route.since + kCallers) {
    seek(route.qp->shared->qpn);
    return;
  }
  route.asked_at = now;
  if (!near) {
    request_connection(route.path->to, route.path->from, Target::queue_pair(route.path->qpn), route.path->qpn,
                       nullptr);
    return;
  }
  route.path->is_called.store(ask(*near, route.path->qpn), std::memory_order_relaxed);
}

// Who of that node has the number? Answers whether the way there is sound: then, if no answer comes, who would give it has
// no processor.
bool Remote::ask(RemotePeer& near, uint32_t qpn) {
  const wire::QueryHead head{sizeof head, wire::FrameKind::kQuery, {}, qpn, 0};
  std::lock_guard out(near.out_mutex);
  if (std::byte* const at = append_request(near, sizeof head); at != nullptr) {
    std::memcpy(at, &head, sizeof head);
    ++near.asked;
  }
  flush(near);
  return is_way_sound(near);
}

void Remote::bind(Route& route, const std::shared_ptr<RemotePeer>& peer) {
  route.peer = peer;
  Qp& qp = *route.qp;
  qp.send_lock.lock();
  if (qp.transport == route.path.get()) {
    route.path->peer = peer;
    if (qp.sq_next != qp.sq_posted && progress_send_queue(qp, false) != kEndOfTime) process_.scheduler().add(&qp);
  }
  qp.send_lock.unlock();
}

void Remote::serve_seeks(int64_t now) {
  if (!seeking_.exchange(false, std::memory_order_acq_rel)) return;
  std::vector<uint32_t> seeks;
  {
    std::lock_guard lock(seek_mutex_);
    seeks.swap(seeks_);
  }
  for (const uint32_t qpn : seeks)
    if (const auto found = routes_.find(qpn); found != routes_.end()) find_peer(found->second, now);
}

void Remote::arrived(const wire::EstablishedConnection& arrived) {
  std::lock_guard progress_lock(progress_mutex_);
  admit(arrived);
}

void Remote::admit(const wire::EstablishedConnection& arrived) {
  const int64_t now = now_ns();
  std::erase_if(connect_requests_, [&](const ConnectRequest& request) {
    return arrived.request_id != 0 && request.request_id == arrived.request_id;
  });
  if (has_enough_of(arrived)) {
    close_connection(arrived.fd);
    return;
  }
  const std::shared_ptr<RemotePeer> peer = peer_of(arrived.peer);
  if (peer->connected.load(std::memory_order_relaxed)) {
    // Two at once: the one begun by the lower of the two stays, as both of them will find.
    const bool by_lesser = arrived.begun_here == (self_ < arrived.peer);
    if (arrived.begun_here != peer->begun_here && !by_lesser && now < peer->since + kSameMoment) {
      close_connection(arrived.fd);
      return;
    }
    // What has come over the one that goes is not lost; unacknowledged messages would be.
    drive_one(*peer, true);
    if (peer->connected.load(std::memory_order_relaxed)) lose(*peer);
  }
  {
    std::lock_guard out(peer->out_mutex);
    peer->fd = arrived.fd;
    wire::notice_silence(peer->fd);
    peer->address = arrived.peer_address;
    peer->own_address = arrived.own_address;
    peer->begun_here = arrived.begun_here;
    peer->since = now;
    peer->gone = false;
    peer->awaits_answer = peer->blocked = false;
    peer->broken.store(false, std::memory_order_relaxed);
    peer->out_ended.store(false, std::memory_order_relaxed);
    peer->epoch.fetch_add(1, std::memory_order_relaxed);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = peer.get();
    syscall(SYS_epoll_ctl, epoll_, EPOLL_CTL_ADD, peer->fd, &event);
    peer->connected.store(true, std::memory_order_release);
  }
  note_taken(peer->address, false);
  publish();
  VERBENA_INFO("connected to process %u of %s", arrived.peer.slot, peer->address.text().c_str());
  const bool found_qp = arrived.begun_here && arrived.target.kind == wire::TargetKind::kQueuePair;
  if (found_qp) know(peer->address, arrived.target.number, peer);
  for (auto& [qpn, route] : routes_) {
    if (route.path->to != peer->address) continue;
    if (route.peer == peer || (!route.peer && found_qp && route.path->qpn == arrived.target.number))
      bind(route, peer);
    else if (!route.peer)
      route.asked_at = 0, seek(qpn);
  }
  serve_seeks(now);
  ask_now(peer->address);
  send_waiting_datagrams(now);
}

void Remote::failed(uint64_t request_id, wire::Refusal refusal) {
  std::lock_guard progress_lock(progress_mutex_);
  const auto found = std::find_if(connect_requests_.begin(), connect_requests_.end(),
                                  [&](const ConnectRequest& c) { return c.request_id == request_id; });
  if (found == connect_requests_.end()) return;
  const ConnectRequest request = *found;
  connect_requests_.erase(found);
  publish();
  // A machine that has taken the call, and nobody there gets a processor to answer it: it is called again.
  if (refusal != wire::Refusal::kSilent && refusal != wire::Refusal::kBusy) note_taken(request.to, false);
  VERBENA_INFO("no connection to %s: %s", request.to.text().c_str(), wire::words(refusal));
  // The one who had the numbers has ended; others that come after it are not meant.
  if (refusal == wire::Refusal::kNobody && request.peer) request.peer->gone = true;
  if (refusal == wire::Refusal::kNobody && !request.peer) drop_waiting_datagrams(request.to, request.qpn);
}

void Remote::taken(uint64_t request_id) {
  std::lock_guard progress_lock(progress_mutex_);
  for (const ConnectRequest& request : connect_requests_)
    if (request.request_id == request_id) note_taken(request.to, true);
}

void Remote::note_taken(const NetAddress& to, bool taken) {
  for (auto& [qpn, route] : routes_)
    if (route.path->to == to) route.path->is_called.store(taken, std::memory_order_relaxed);
}

// The connection has ended. What was under way on it is sent again on the next one.
void Remote::lose(RemotePeer& peer) {
  {
    std::lock_guard out(peer.out_mutex);
    peer.connected.store(false, std::memory_order_release);
    close_connection(peer.fd);
    peer.fd = -1;
    peer.out.clear();
    peer.reads.clear();
    peer.answers.clear();
    peer.broken.store(false, std::memory_order_relaxed);
    peer.out_ended.store(false, std::memory_order_relaxed);
  }
  peer.stalled = peer.answers_due = peer.ready = false;
  peer.takes_large = 0;
  peer.ended_at = 0;
  peer.in.clear();
  peer.bulk_in = {};
  peer.held_since = 0;
  peer.asked = 0;
  peer.acknowledgements_due.clear();
  peer.waiting_for_receives.clear();
  for (auto& [key, remote_requester] : peer.remote_requesters) {
    remote_requester->acknowledgement_due = remote_requester->waits_for_receive = false;
    remote_requester->begin_again();
  }
  VERBENA_INFO("connection to process %u of %s has ended", peer.id.slot, peer.address.text().c_str());
  for (auto& [qpn, route] : routes_) {
    if (route.peer.get() != &peer) continue;
    route.asked_at = 0;
    route.qp->send_lock.lock();
    const bool waits = route.qp->transport == route.path.get() && route.qp->sq_next != route.qp->sq_posted;
    if (waits && progress_send_queue(*route.qp, false) != kEndOfTime) process_.scheduler().add(route.qp);
    route.qp->send_lock.unlock();
  }
  publish();
}

void Remote::drop_unused_peers() {
  std::erase_if(peers_, [&](const std::shared_ptr<RemotePeer>& peer) {
    if (peer->connected.load(std::memory_order_relaxed)) return false;
    if (std::any_of(routes_.begin(), routes_.end(), [&](const auto& r) { return r.second.peer == peer; })) return false;
    for (const auto& [key, remote_requester] : peer->remote_requesters) remote_requester->give_back();
    return true;
  });
}

// Who polls while somebody is being called keeps a processor busy, too (waits_long()).
void Remote::publish() {
  const bool active = std::any_of(peers_.begin(), peers_.end(), [](const auto& peer) {
    return peer->connected.load(std::memory_order_relaxed);
  });
  active_.store(active, std::memory_order_release);
  process_.scheduler().set_network_active(active || !connect_requests_.empty());
}

}  // namespace verbena
