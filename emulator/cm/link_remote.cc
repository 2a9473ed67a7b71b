// SPDX-License-Identifier: BSD-2-Clause
//
// Links to processes of other nodes. A pair of processes uses one link. If both connect at the same time,
// each process sends on the link that it had first, and reads both until the peer closes one.
#include <iterator>

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
  link->request_id = connection_listener_->connect(to, from, wire::Target::cm_listener(service),
                                                   now_ns() + kConnectPatience);
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

// The link that carries frames to `peer`, if it is not the one with this token.
Links::Link* Links::other_way(const Peer& peer, uint64_t token) {
  const auto way = ways_.find(peer);
  if (way == ways_.end() || way->second == token) return nullptr;
  return links_.at(way->second).get();
}

void Links::forget_link(uint64_t token) {
  const auto found = links_.find(token);
  if (found == links_.end()) return;
  Link& link = *found->second;
  if (link.request_id != 0) connection_listener_->cancel(link.request_id);
  if (const auto way = ways_.find(link.peer); way != ways_.end() && way->second == token) ways_.erase(way);
  if (link.fd() >= 0) watcher_.forget(link.fd());
  links_.erase(found);
}

void Links::connected(Link& link, int fd) {
  link.stream.take(fd);
  wire::notice_silence(fd);
  link.connected = true;
  link.request_id = 0;
  watch(link);
  flush(link);
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
    if (Link* calling = other_way(peer, fresh.token); calling != nullptr && !calling->connected) {
      fresh.waiting.swap(calling->waiting);  // the peer's connection came first
      forget_link(calling->token);
    }
    ways_.emplace(peer, fresh.token);
    return connected(fresh, arrived.fd);
  }
  Link* link = find_request(arrived.request_id);
  if (link == nullptr) {  // not needed any more
    no_longer_keep(arrived.fd);
    Stream().take(arrived.fd);
    return;
  }
  link->request_id = 0;
  if (link->peer != peer) {
    const Peer before = link->peer;
    ways_.erase(before);
    link->peer = peer;
    user_.peer_found(before, peer);
  }
  Link* known = other_way(peer, link->token);
  if (known == nullptr || !known->connected) {
    if (known != nullptr) {
      link->waiting.insert(link->waiting.begin(), known->waiting.begin(), known->waiting.end());
      forget_link(known->token);
    }
    ways_[peer] = link->token;
    return connected(*link, arrived.fd);
  }
  // There is a link already: this one has only identified the process.
  std::move(link->waiting.begin(), link->waiting.end(), std::back_inserter(known->waiting));
  link->stream.take(arrived.fd);
  forget_link(link->token);
  flush(*known);
}

void Links::failed(uint64_t request_id, wire::Refusal refusal) {
  Link* link = find_request(request_id);
  if (link == nullptr) return;
  link->request_id = 0;
  const Peer peer = link->peer;
  std::deque<Frame> unsent;
  unsent.swap(link->waiting);
  VERBENA_INFO("rdma_cm: no connection to %s: %s", link->to.text().c_str(), wire::words(refusal));
  forget_link(link->token);
  if (peer.node != kNodeToBeFound)
    lost_.push_back(peer);
  else if ((refusal == wire::Refusal::kNobody || refusal == wire::Refusal::kNotListening) && !unsent.empty())
    user_.nobody_there(peer, unsent.front());
}

// The connection has ended: its process is gone, or the network is interrupted.
void Links::hang_up(Link& link) {
  if (link.fd() >= 0) watcher_.forget(link.fd());
  link.stream.close();
  link.connected = false;
  const auto way = ways_.find(link.peer);
  const bool in_use = way != ways_.end() && way->second == link.token;
  if (!in_use || !user_.is_of_interest(link.peer)) return forget_link(link.token);
  link.request_id = connection_listener_->connect(
      link.to, link.from, wire::Target::cm_of_process(process_of(link.peer)), now_ns() + kReconnectPatience);
}

}  // namespace verbena::cm
