// SPDX-License-Identifier: BSD-2-Clause
#include "cm/link.h"

#include <errno.h>

#include <cstring>

#include "fabric/node.h"
#include "observe/log.h"
#include "observe/observer.h"
#include "roce/headers.h"
#include "roce/mad.h"

namespace verbena::cm {
namespace {

constexpr uint32_t kHelloMagic = 0x48'4d'43'56;  // "VCMH"
constexpr uint32_t kHelloVersion = 1;
constexpr int kFramesAtATime = 64;
constexpr uint64_t kPauseMs = 20;

// The first message of the connecting process.
struct Hello {
  uint32_t magic;
  uint32_t version;
  uint64_t node_id;
  uint32_t slot;
  uint32_t generation;
};
static_assert(sizeof(Hello) == 24);

// The message as an adapter would send it: a MAD from QP 1 to QP 1.
[[gnu::cold]] void tell_of_message(Observer& observer, std::span<const uint8_t> frame) {
  PacketRoute route;
  route.hop_limit = 64;
  std::copy_n(frame.begin() + kFrameHead - 32, 16, route.source.begin());
  std::copy_n(frame.begin() + kFrameHead - 16, 16, route.destination.begin());
  observer.on_datagram({.source_qpn = roce::kManagementQpn,
                        .target_qpn = roce::kManagementQpn,
                        .psn = 0,
                        .qkey = roce::kManagementQkey,
                        .pkey = roce::kDefaultPkey,
                        .route = route,
                        .payload = frame.subspan(kFrameHead)});
}

void tell_observer(std::span<const uint8_t> frame) {
  if (Observer* const seen = observer(); seen != nullptr && frame.size() == kFrameSize) [[unlikely]]
    tell_of_message(*seen, frame);
}

}  // namespace

Links::Links(Watcher& watcher, LinkUser& user, AlarmClock& clock, uint64_t first_token)
    : watcher_(watcher), user_(user), next_token_(first_token), again_(clock, try_again, this) {}

Links::~Links() {
  for (const auto& [token, link] : links_) {
    if (link->request_id != 0) requests_->cancel(link->request_id);
    if (link->fd() >= 0) watcher_.forget(link->fd());
  }
}

void Links::open(const std::string& node, const NodeDirectory& directory, const Peer& self,
                 ServiceSocket& services, void (*wake)(void*), void* context) {
  node_ = node;
  directory_ = &directory;
  self_ = self;
  calls_.open(services, ServiceNumber::kConnectionManager, wake, context);
}

void Links::close_in_child() const {
  for (const auto& [token, link] : links_) link->socket.close_in_child();
}

void Links::send(const Peer& peer, const Frame& frame) {
  tell_observer(frame);
  if (peer == self_) {
    to_self_.push_back(frame);
    return;
  }
  auto way = ways_.find(peer);
  if (way == ways_.end() && peer.is_remote()) {
    // The process was not found, or not again. A peer that was known is gone; for the others there is no
    // report.
    if (peer.node != kNodeToBeFound) lost_.push_back(peer);
    return;
  }
  if (way == ways_.end()) {
    auto link = std::make_unique<Link>();
    link->peer = peer;
    link->token = next_token_++;
    if (!connect(*link)) {
      lost_.push_back(peer);
      return;
    }
    way = ways_.emplace(peer, link->token).first;
    links_.emplace(link->token, std::move(link));
  }
  Link& link = *links_.at(way->second);
  if (link.waiting.size() >= kMaxWaiting) {
    VERBENA_WARN(cm_message_lost,
                 "rdma_cm: a message to the process in slot %u is lost: %zu wait already, it does not read",
                 peer.slot, link.waiting.size());
    return;
  }
  link.waiting.push_back(frame);
  flush(link);
}

// False: the peer is gone. True: connected, or to be retried.
bool Links::connect(Link& link) {
  const Hello hello{kHelloMagic, kHelloVersion, directory_->header().node_id, self_.slot, self_.generation};
  const int error = call_service(slot_address(*directory_, node_, link.peer.slot, link.peer.generation),
                                 ServiceNumber::kConnectionManager,
                                 {reinterpret_cast<const uint8_t*>(&hello), sizeof hello}, &link.socket);
  if (error == EAGAIN || error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) {
    if (!directory_->alive(link.peer.slot, link.peer.generation)) return false;
    again_.set_after_ms(kPauseMs);
    return true;
  }
  if (error != 0) return false;
  link.connected = true;
  watch(link);
  return true;
}

void Links::flush(Link& link) {
  if (!link.connected) return;
  if (link.stream.has_rest()) static_cast<void>(link.stream.send_rest());  // read() sees an error, too
  while (!link.waiting.empty()) {
    const int error = link.send(link.waiting.front());
    if (error == EAGAIN || error == ENOBUFS || error == ENOMEM) break;
    // Broken: read() first gets what the peer has sent, then the end. What waits goes on the next connection
    // to a process of another node.
    if (error != 0) {
      if (!link.is_remote()) link.waiting.clear();
      break;
    }
    link.waiting.pop_front();
  }
  if (link.has_more() != link.awaits_room) watch(link);
}

void Links::watch(Link& link) {
  link.awaits_room = link.has_more();
  watcher_.watch(link.fd(), link.token, link.awaits_room);
}

void Links::try_again(void* self) {
  auto& links = *static_cast<Links*>(self);
  std::vector<uint64_t> gone;
  for (const auto& [token, link] : links.links_) {
    if (link->connected || link->is_remote()) continue;
    if (links.connect(*link))
      links.flush(*link);
    else
      gone.push_back(token);
  }
  for (const uint64_t token : gone) links.drop(token);
}

void Links::accept_all() {
  for (ServiceInbox::Call call; calls_.take(&call);) {
    auto link = std::make_unique<Link>();
    link->socket = std::move(call.connection);
    link->connected = true;
    link->token = next_token_++;
    if (!greeted(*link, call.message)) continue;
    watch(*link);
    links_.emplace(link->token, std::move(link));
  }
}

void Links::ready(uint64_t token) {
  const auto found = links_.find(token);
  if (found == links_.end()) return;
  flush(*found->second);
  read(*found->second);
}

void Links::read(Link& link) {
  const uint64_t token = link.token;
  for (int i = 0; i < kFramesAtATime; ++i) {
    std::array<uint8_t, kFrameSize + 1> bytes;
    const ssize_t got = link.is_remote() ? link.stream.receive(bytes) : link.socket.receive(bytes);
    if (got == -EAGAIN) return;
    if (got <= 0) return drop(token);
    const std::span<const uint8_t> message(bytes.data(), std::min(static_cast<size_t>(got), bytes.size()));
    if (link.is_remote()) tell_observer(message);  // else its sender has
    user_.frame_arrived(link.peer, message);
    if (!links_.contains(token)) return;
  }
}

// A false slot can only come from another process of the same user (MessageSocket::accept_from).
bool Links::greeted(Link& link, std::span<const uint8_t> bytes) {
  Hello hello;
  if (bytes.size() != sizeof hello) return false;
  std::memcpy(&hello, bytes.data(), sizeof hello);
  if (hello.magic != kHelloMagic || hello.version != kHelloVersion ||
      hello.node_id != directory_->header().node_id || hello.slot >= kMaxSlots ||
      !directory_->alive(hello.slot, hello.generation)) {
    VERBENA_WARN(cm_message_malformed, "rdma_cm: a greeting of slot %u, generation %u, version %u is refused",
                 hello.slot, hello.generation, hello.version);
    return false;
  }
  link.peer = {hello.slot, hello.generation};
  ways_.emplace(link.peer, link.token);  // unless we have connected to it at the same time
  return true;
}

void Links::drop(uint64_t token) {
  const auto found = links_.find(token);
  if (found == links_.end()) return;
  Link& link = *found->second;
  if (link.is_remote()) return hang_up(link);
  lost_.push_back(link.peer);
  if (const auto way = ways_.find(link.peer); way != ways_.end() && way->second == token) ways_.erase(way);
  if (link.socket.is_open()) watcher_.forget(link.socket.fd());
  links_.erase(found);
}

void Links::carry() {
  while (!to_self_.empty()) {
    const Frame frame = to_self_.front();
    to_self_.pop_front();
    user_.frame_arrived(self_, frame);
  }
  std::vector<Peer> lost;
  lost.swap(lost_);
  for (const Peer& peer : lost) {
    VERBENA_INFO(
        "rdma_cm: the process in slot %u (generation %u) cannot be reached any more: its connections end",
        peer.slot, peer.generation);
    user_.peer_lost(peer);
  }
}

}  // namespace verbena::cm
