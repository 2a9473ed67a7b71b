// SPDX-License-Identifier: BSD-2-Clause
#include "engine/remote/peers.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "adapter/clock.h"
#include "engine/remote/remote_requester.h"
#include "fabric/kernel_epoll.h"
#include "observe/log.h"

namespace verbena {
namespace {

// An address belongs to one node, and a node has no more processes.
constexpr size_t kMostProcesses = kMaxSlots;

}  // namespace

RemotePeers::RemotePeers(Process& process) : process_(process), epoll_(kernel_epoll_create()) {}

RemotePeers::~RemotePeers() {
  for (const std::shared_ptr<RemotePeer>& peer : peers_) {
    std::lock_guard out(peer->out_mutex);
    peer->connected.store(false, std::memory_order_release);
    if (peer->fd >= 0) close_connection(std::exchange(peer->fd, -1));
  }
  if (epoll_ >= 0) syscall(SYS_close, epoll_);
}

std::shared_ptr<RemotePeer> RemotePeers::of(const wire::ProcessId& id) {
  for (const std::shared_ptr<RemotePeer>& peer : peers_)
    if (peer->id == id) return peer;
  auto peer = std::make_shared<RemotePeer>(process_, id);
  peer->epoll = epoll_;
  peers_.push_back(peer);
  perhaps_unused_.push_back(peer);
  return peer;
}

std::shared_ptr<RemotePeer> RemotePeers::connected_to(const wire::NetAddress& address) const {
  for (const std::shared_ptr<RemotePeer>& peer : peers_)
    if (peer->address == address && peer->connected.load(std::memory_order_relaxed)) return peer;
  return nullptr;
}

bool RemotePeers::any_connected() const {
  return std::any_of(peers_.begin(), peers_.end(),
                     [](const auto& peer) { return peer->connected.load(std::memory_order_relaxed); });
}

bool RemotePeers::has_enough_of(const wire::EstablishedConnection& arrived) const {
  size_t others = 0;
  for (const std::shared_ptr<RemotePeer>& peer : peers_)
    others += peer->address == arrived.peer_address && peer->id != arrived.peer &&
              peer->connected.load(std::memory_order_relaxed);
  if (others < kMostProcesses) return false;
  VERBENA_WARN(node_full,
               "refused process %u of %s: %zu processes of that address are connected, as many as a node has",
               arrived.peer.slot, arrived.peer_address.text().c_str(), others);
  return true;
}

void RemotePeers::attach(RemotePeer& peer, const wire::EstablishedConnection& arrived) {
  std::lock_guard out(peer.out_mutex);
  peer.fd = arrived.fd;
  wire::notice_silence(peer.fd);
  peer.address = arrived.peer_address;
  peer.own_address = arrived.own_address;
  peer.begun_here = arrived.begun_here;
  peer.since = now_ns();
  peer.gone = false;
  peer.awaits_answer = peer.blocked = false;
  peer.broken.store(false, std::memory_order_relaxed);
  peer.out_ended.store(false, std::memory_order_relaxed);
  peer.epoch.fetch_add(1, std::memory_order_relaxed);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = &peer;
  kernel_epoll_ctl(epoll_, EPOLL_CTL_ADD, peer.fd, &event);
  peer.connected.store(true, std::memory_order_release);
}

void RemotePeers::detach(RemotePeer& peer) {
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
  perhaps_unused_.push_back(peer.shared_from_this());
}

void RemotePeers::release(RemotePeer& peer) {
  if (--peer.users == 0) perhaps_unused_.push_back(peer.shared_from_this());
}

void RemotePeers::drop_unused() {
  for (const std::shared_ptr<RemotePeer>& peer : std::exchange(perhaps_unused_, {})) {
    if (peer->users != 0 || peer->connected.load(std::memory_order_relaxed)) continue;
    if (std::erase(peers_, peer) == 0) continue;  // listed twice
    for (const auto& [key, remote_requester] : peer->remote_requesters) remote_requester->give_back();
  }
}

}  // namespace verbena
