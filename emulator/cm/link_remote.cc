// SPDX-License-Identifier: BSD-2-Clause
//
// Links to processes of other nodes. Each process sends on one connection to a peer (the way to it), and
// reads all of them. A request for a service tells nothing about the process that has it, so a process that
// makes several requests at once gets as many connections to one process. Which stay:
//
// - Of two connections begun by one process, that process gives up the one that came later.
// - Of two connections begun by one process each, the higher process (wire::ProcessId) gives its own up.
//
// The peer may have chosen just that connection for its frames: to give up means to close one direction and
// to read until the peer has seen that and closes the other. A request for a connection is never withdrawn,
// for the same reason: the peer may have the connection already.

#include "adapter/clock.h"
#include "cm/link.h"
#include "fabric/fork_descriptors.h"
#include "observe/log.h"
#include "wire/stream.h"

namespace verbena::cm {
namespace {

Peer peer_of(const wire::ProcessId& id) { return {id.slot, id.generation, id.node}; }
wire::ProcessId process_of(const Peer& peer) { return {peer.node, peer.slot, peer.generation}; }

}  // namespace

Peer Links::connect(const wire::NetAddress& to, const wire::NetAddress& from, uint64_t service) {
  auto link = std::make_unique<Link>();
  link->peer = {next_call_++, 1, kNodeToBeFound};
  link->token = next_token_++;
  link->to = to;
  link->from = from;
  link->request_id =
      requests_->connect(to, from, wire::Target::cm_listener(service), now_ns() + kConnectPatience);
  const Peer peer = link->peer;
  ways_.emplace(peer, link->token);
  links_.emplace(link->token, std::move(link));
  return peer;
}

Links::Link* Links::find_request(uint64_t request_id) {
  for (const auto& [token, link] : links_)
    if (link->request_id == request_id) return link.get();
  return nullptr;
}

// The link that carries frames to `peer`; nullptr: none.
Links::Link* Links::way_to(const Peer& peer) {
  const auto way = ways_.find(peer);
  return way == ways_.end() ? nullptr : links_.at(way->second).get();
}

// A connected link to the same peer that takes frames; nullptr: none.
Links::Link* Links::other_link(const Link& link) {
  for (const auto& [token, other] : links_)
    if (other.get() != &link && other->peer == link.peer && other->connected && !other->only_receives)
      return other.get();
  return nullptr;
}

void Links::move_way(Link& from, Link& to) {
  to.waiting.insert(to.waiting.begin(), from.waiting.begin(), from.waiting.end());
  from.waiting.clear();
  ways_[to.peer] = to.token;
}

void Links::forget_link(uint64_t token) {
  const auto found = links_.find(token);
  if (found == links_.end()) return;
  Link& link = *found->second;
  if (const auto way = ways_.find(link.peer); way != ways_.end() && way->second == token) ways_.erase(way);
  if (link.fd() >= 0) watcher_.forget(link.fd());
  links_.erase(found);
}

void Links::connected(Link& link, int fd) {
  link.stream.take(fd);
  wire::notice_silence(fd);
  link.connected = true;
  watch(link);
  flush(link);
}

void Links::receive_only(Link& link, int fd) {
  link.only_receives = true;
  connected(link, fd);
  link.stream.end_sending();
}

void Links::arrived(const wire::EstablishedConnection& arrived) {
  const Peer peer = peer_of(arrived.peer);
  if (!arrived.begun_here) {
    auto link = std::make_unique<Link>();
    link->peer = peer;
    link->token = next_token_++;
    link->to = arrived.peer_address;
    link->from = arrived.own_address;
    Link& fresh = *link;
    links_.emplace(fresh.token, std::move(link));
    Link* const way = way_to(peer);
    if (way == nullptr || !way->connected) {
      if (way != nullptr) move_way(*way, fresh);  // the peer's connection came first
      ways_[peer] = fresh.token;
    }
    return connected(fresh, arrived.fd);
  }
  Link* const link = find_request(arrived.request_id);
  if (link == nullptr) {  // not needed any more
    no_longer_keep(arrived.fd);
    Stream().take(arrived.fd);
    return;
  }
  link->request_id = 0;
  link->begun_here = true;
  if (link->peer != peer) {
    const Peer before = link->peer;
    ways_.erase(before);
    link->peer = peer;
    user_.peer_found(before, peer);
  }
  Link* const way = way_to(peer);
  const bool gives_up =
      way != nullptr && way != link && way->connected && (way->begun_here || arrived.peer < id_);
  if (gives_up) {
    move_way(*link, *way);
    receive_only(*link, arrived.fd);
    return flush(*way);
  }
  if (way != nullptr && way != link) move_way(*way, *link);
  ways_[peer] = link->token;
  connected(*link, arrived.fd);
}

void Links::failed(uint64_t request_id, wire::Refusal refusal) {
  Link* link = find_request(request_id);
  if (link == nullptr) return;
  link->request_id = 0;
  const Peer peer = link->peer;
  const bool was_way = way_to(peer) == link;
  std::deque<Frame> unsent;
  unsent.swap(link->waiting);
  VERBENA_INFO("rdma_cm: no connection to %s: %s", link->to.text().c_str(), wire::words(refusal));
  forget_link(link->token);
  if (!was_way) return;  // a connection of the peer came first
  if (peer.node != kNodeToBeFound)
    lost_.push_back(peer);
  else if ((refusal == wire::Refusal::kNobody || refusal == wire::Refusal::kNotListening) && !unsent.empty())
    user_.nobody_there(peer, unsent.front());
}

// The connection has ended: the peer has given it up, its process is gone, or the network is interrupted.
void Links::hang_up(Link& link) {
  if (link.fd() >= 0) watcher_.forget(link.fd());
  if (link.stream.has_rest()) link.waiting.push_front(link.stream.begun());
  link.stream.close();
  link.connected = false;
  if (way_to(link.peer) != &link) return forget_link(link.token);
  if (Link* const other = other_link(link)) {
    move_way(link, *other);
    forget_link(link.token);
    return flush(*other);
  }
  if (!user_.is_of_interest(link.peer)) return forget_link(link.token);
  link.request_id = requests_->connect(link.to, link.from, wire::Target::cm_of_process(process_of(link.peer)),
                                       now_ns() + kReconnectPatience);
}

}  // namespace verbena::cm
