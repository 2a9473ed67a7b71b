// SPDX-License-Identifier: BSD-2-Clause
#include "wire/connection_listener.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "adapter/clock.h"
#include "fabric/fork_descriptors.h"
#include "fabric/kernel_epoll.h"
#include "fabric/node.h"
#include "fabric/node_membership.h"
#include "fabric/problem.h"
#include "observe/log.h"
#include "wire/address_watch.h"
#include "wire/connection_passing.h"
#include "wire/key.h"
#include "wire/listening.h"
#include "wire/port_claim.h"

namespace verbena::wire {
namespace {

constexpr uint64_t kAddressesToken = kMaxGids;  // listeners' are below
constexpr uint64_t kFirstToken = kMaxGids + 1;
constexpr int64_t kNever = INT64_MAX;
constexpr int64_t kNotePause = 1'000'000'000;
constexpr int64_t kCrowdedPause = 20'000'000;
constexpr int64_t kAddressesPause = 5'000'000;  // another process of the node is checking
constexpr int kAcceptsAtATime = 64;

void close_kept(int fd) {
  no_longer_keep(fd);
  ::close(fd);
}

NetAddress address_of(int fd, int (*which)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  NetAddress address;
  if (which(fd, reinterpret_cast<sockaddr*>(&storage), &size) == 0)
    NetAddress::from_socket_address(storage, &address);
  return address;
}

// True: the connecting process has hung up, and has tried another listener.
bool is_closed(int fd) {
  char byte;
  const ssize_t got = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

}  // namespace

int ConnectionListener::open(NodeMembership& membership, ConnectionObserver& observer, std::string* problem) {
  membership_ = &membership;
  data_ = &observer;
  const int error = begin(problem);
  is_open_ = error == 0;
  if (error != 0) close();
  return error;
}

void ConnectionListener::close() {
  is_open_ = false;
  if (epoll_fd_ >= 0) membership_->unwatch(epoll_fd_);
  incoming_.clear();
  outgoing_.clear();
  for (const Listener& listener : listeners_) close_kept(listener.fd);
  listeners_.clear();
  for (const int claim : claims_) close_kept(claim);  // after the listeners
  claims_.clear();
  own_.clear();
  passed_connections_.close();
  for (int* const fd : {&addresses_, &epoll_fd_})
    if (*fd >= 0) close_kept(std::exchange(*fd, -1));
  {
    std::lock_guard lock(mutex_);
    asked_.clear();
    unfinished_.clear();
  }
  std::lock_guard lock(cm_mutex_);
  cm_ = nullptr;
  self_ = {};
}

int ConnectionListener::begin(std::string* problem) {
  const NetworkDescription& network = membership_->directory().devices().network;
  if (network.enabled == 0) return fail_errno(ENONET, problem, membership_->node());
  self_ = {membership_->directory().header().node_id, membership_->slot(), membership_->generation()};
  port_ = static_cast<uint16_t>(network.port);
  if (const int error = node_key(membership_->node(), &key_); error != 0)
    return fail_errno(error, problem, key_path(membership_->node()));
  epoll_fd_ = kernel_epoll_create();
  if (epoll_fd_ < 0) return fail_errno(errno, problem, "epoll");
  keep_from_children(epoll_fd_);
  const auto wake = [](void* membership) { static_cast<NodeMembership*>(membership)->kick(); };
  passed_connections_.open(membership_->services(), ServiceNumber::kPassedConnection, wake, membership_);
  for (uint32_t i = 0; i < std::min(network.count, kMaxGids); ++i) {
    const NetAddress address{network.addresses[i]};
    PortClaim claim;
    if (const int error = claim.take(address, port_, {self_.node, self_.slot, self_.generation}, problem);
        error != 0)
      return error;
    keep_from_children(claim.fd());
    claims_.push_back(claim.release());
    Listener listener{-1, address, 0};
    if (const int error = listen_at(address, port_, &listener.fd); error != 0)
      return fail_errno(error, problem,
                        "cannot listen at " + address.text() + " port " + std::to_string(port_));
    keep_from_children(listener.fd);
    watch(listener.fd, listeners_.size(), EPOLLIN);
    listeners_.push_back(listener);
    own_.push_back(address);
  }
  next_token_ = kFirstToken;
  addresses_ = watch_addresses();
  if (addresses_ >= 0) {
    keep_from_children(addresses_);
    watch(addresses_, kAddressesToken, EPOLLIN);
  } else {
    VERBENA_INFO("the kernel tells nothing of addresses that come and go: errno %d", errno);
  }
  return membership_->watch(epoll_fd_);
}

void ConnectionListener::watch(int fd, uint64_t token, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = token;
  if (kernel_epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) != 0 && errno == EEXIST)
    kernel_epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, fd, &event);
}

// A peer may connect often and be refused each time: one line a second is enough.
void ConnectionListener::note(const NetAddress& peer, Refusal refusal, uint32_t their_version,
                              const char* doing) {
  const bool misconfigured =
      refusal == Refusal::kKey || refusal == Refusal::kVersion || refusal == Refusal::kAddress;
  const LogLevel level = misconfigured ? LogLevel::kError : LogLevel::kWarn;
  const int64_t now = now_ns();
  if (!logs(level)) return;
  if (noted_ns_ != 0 && now - noted_ns_ < kNotePause) {
    ++unnoted_;
    return;
  }
  char version[64] = "", others[64] = "";
  if (refusal == Refusal::kVersion)
    snprintf(version, sizeof version, " (theirs %u, ours %u)", their_version, kProtocolVersion);
  if (unnoted_ != 0) snprintf(others, sizeof others, "; %u more like this were not logged", unnoted_);
  log_line(level, "%s %s: %s%s%s [node_refused]", doing, peer.text().c_str(), words(refusal), version,
           others);
  noted_ns_ = now;
  unnoted_ = 0;
}

// ---- in ----

void ConnectionListener::accept_all(Listener& listener, int64_t now) {
  for (int i = 0; i < kAcceptsAtATime; ++i) {
    const int fd = accept4(listener.fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      // Its readiness would keep this thread awake: it is not watched for a while.
      kernel_epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, listener.fd, nullptr);
      listener.resume_ns = now + kCrowdedPause;
      return;
    }
    keep_from_children(fd);
    Nonce nonce;
    if (getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size())) {
      close_kept(fd);
      continue;
    }
    const uint64_t token = next_token_++;
    Incoming& incoming = incoming_.add(
        token,
        std::make_unique<Incoming>(fd, address_of(fd, getpeername), key_, nonce, now + kIncomingPatience));
    watch(fd, token, EPOLLIN);
    serve_incoming(token, incoming);  // its hello has usually come with it
  }
}

void ConnectionListener::serve_incoming(uint64_t token, Incoming& incoming) {
  const Incoming::State state = incoming.progress(self_.node, own_);
  if (state == Incoming::State::kGoesOn) {
    if (incoming.has_greeted()) incoming_.greeted(token);
    return;
  }
  const std::unique_ptr<Incoming> over = incoming_.take(token);
  if (state == Incoming::State::kOver)
    return note(over->peer(), over->refusal(), over->handshake().their_version(), "refused");
  kernel_epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, over->fd(), nullptr);
  admit(over->handshake().admitted(), over->give_away(), over->peer());
}

Refusal ConnectionListener::find_owner(const Hello& hello, uint32_t* slot, uint32_t* generation) const {
  const NodeDirectory& directory = membership_->directory();
  const Target& target = hello.target;
  QpnEntry entry;
  const auto find = find_listener.load(std::memory_order_acquire);
  bool found = true;
  switch (target.kind) {
    case TargetKind::kQueuePair:
      found = directory.find_qpn(target.number, &entry);
      *slot = entry.slot;
      break;
    case TargetKind::kCmListener:
      found = find != nullptr && find(directory, membership_->node(), hello.to, target.service, slot);
      break;
    case TargetKind::kProcess:
    case TargetKind::kCmProcess:
      found = target.process.node == self_.node && target.process.slot < kMaxSlots;
      *slot = target.process.slot;
      break;
    case TargetKind::kNode:
    case TargetKind::kGreeting:
      *slot = self_.slot;
      break;
  }
  if (!found || *slot >= kMaxSlots) return Refusal::kNobody;
  *generation = directory.slot(*slot).generation.load(std::memory_order_acquire);
  const bool that_one = !target.process.somebody() || target.process.generation == *generation;
  return that_one && directory.alive(*slot, *generation) ? Refusal::kNone : Refusal::kNobody;
}

void ConnectionListener::admit(const Admitted& admitted, int fd, const NetAddress& peer) {
  uint32_t slot = 0, generation = 0;
  if (const Refusal refusal = find_owner(admitted.hello, &slot, &generation); refusal != Refusal::kNone)
    return refuse(admitted, fd, peer, refusal);
  if (admitted.hello.target.kind == TargetKind::kGreeting) return greet(admitted, fd);
  if (slot == self_.slot && generation == self_.generation) return let_in(admitted, fd);
  const int error = pass_connection(
      slot_address(membership_->directory(), membership_->node(), slot, generation), admitted, fd);
  if (error != 0)
    return refuse(admitted, fd, peer, Refusal::kBusy);  // stopped; or not open yet, or just ended
  close_kept(fd);
}

void ConnectionListener::greet(const Admitted& admitted, int fd) {
  const auto bytes = welcome(key_, admitted.transcript, self_, Refusal::kNone);
  send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  close_kept(fd);
}

void ConnectionListener::refuse(const Admitted& admitted, int fd, const NetAddress& peer, Refusal refusal) {
  note(peer, refusal, kProtocolVersion, "turned away");
  turn_away(admitted, fd, refusal);
}

void ConnectionListener::turn_away(const Admitted& admitted, int fd, Refusal refusal) {
  const auto bytes = welcome(key_, admitted.transcript, self_, refusal);
  send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  close_kept(fd);
}

template <typename Tell>
bool ConnectionListener::tell(const Target& target, Tell&& tell_them) {
  if (!is_for_cm(target.kind)) {
    tell_them(*data_);
    return true;
  }
  std::lock_guard lock(cm_mutex_);
  if (cm_ == nullptr) return false;
  tell_them(*cm_);
  return true;
}

void ConnectionListener::let_in(const Admitted& admitted, int fd) {
  const NetAddress peer = address_of(fd, getpeername);
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const EstablishedConnection arriving{
      fd, admitted.hello.initiator, peer, address_of(fd, getsockname), admitted.hello.target, false, 0};
  const auto send_welcome = [&] {
    const auto bytes = welcome(key_, admitted.transcript, self_, Refusal::kNone);
    return !is_closed(fd) && send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
                                 static_cast<ssize_t>(bytes.size());
  };
  Refusal refusal = Refusal::kNone;
  const bool has_observer = tell(admitted.hello.target, [&](ConnectionObserver& observer) {
    refusal = observer.let_in(arriving, send_welcome);
  });
  if (!has_observer) return refuse(admitted, fd, peer, Refusal::kNobody);
  if (refusal == Refusal::kClosed) return close_kept(fd);
  if (refusal != Refusal::kNone) turn_away(admitted, fd, refusal);
}

void ConnectionListener::take_passed_connections() {
  Admitted admitted;
  int fd = -1;
  while (take_passed_connection(passed_connections_, &admitted, &fd)) {
    uint32_t slot = 0, generation = 0;
    const bool ours = find_owner(admitted.hello, &slot, &generation) == Refusal::kNone && slot == self_.slot;
    if (ours)
      let_in(admitted, fd);
    else
      refuse(admitted, fd, address_of(fd, getpeername), Refusal::kNobody);
  }
}

// ---- out ----

uint64_t ConnectionListener::connect(const NetAddress& to, const NetAddress& from, const Target& target,
                                     int64_t deadline_ns) {
  NetAddress source = from;
  for (const NetAddress& own : own_)
    if (source == NetAddress{} && own.is_ipv4() == to.is_ipv4()) source = own;
  uint64_t request_id;
  {
    std::lock_guard lock(mutex_);
    request_id = next_request_id_++;
    unfinished_.insert(request_id);
    asked_.push_back({request_id, to, source, port_, target, deadline_ns});
  }
  membership_->kick();
  return request_id;
}

void ConnectionListener::cancel(uint64_t request_id) {
  std::lock_guard lock(mutex_);
  unfinished_.erase(request_id);
}

bool ConnectionListener::forget_request(uint64_t request_id) {
  std::lock_guard lock(mutex_);
  return unfinished_.erase(request_id) != 0;
}

void ConnectionListener::begin_requests() {
  std::deque<Outgoing::ConnectRequest> asked;
  {
    std::lock_guard lock(mutex_);
    asked.swap(asked_);
  }
  for (const Outgoing::ConnectRequest& request : asked)
    outgoing_[next_token_++] = std::make_unique<Outgoing>(request, key_, self_);
}

bool ConnectionListener::serve_outgoing(uint64_t token, Outgoing& outgoing, int64_t now, bool ready) {
  {
    std::lock_guard lock(mutex_);
    if (unfinished_.count(outgoing.request().request_id) == 0) return false;
  }
  const int before = outgoing.fd();
  const bool wanted_room = outgoing.wants_room();
  const Outgoing::State state = outgoing.progress(now, ready);
  if (state != Outgoing::State::kGoesOn) {
    finish_outgoing(outgoing, state);
    return false;
  }
  if (wanted_room && outgoing.fd() >= 0 && !outgoing.wants_room())
    tell(outgoing.request().target,
         [&](ConnectionObserver& observer) { observer.taken(outgoing.request().request_id); });
  if (outgoing.fd() >= 0 && (outgoing.fd() != before || outgoing.wants_room() != wanted_room))
    watch(outgoing.fd(), token, outgoing.wants_room() ? EPOLLOUT : EPOLLIN);
  return true;
}

void ConnectionListener::finish_outgoing(Outgoing& outgoing, Outgoing::State state) {
  const Outgoing::ConnectRequest& asked = outgoing.request();
  // A process that is called by name and is not there has usually ended: no warning.
  const bool has_ended =
      asked.target.kind == TargetKind::kProcess &&
      (outgoing.refusal() == Refusal::kNotListening || outgoing.refusal() == Refusal::kNobody);
  if (state == Outgoing::State::kFailed && !has_ended)
    note(asked.to, outgoing.refusal(), outgoing.their_version(), "no connection to");
  if (!forget_request(asked.request_id)) return;
  if (state == Outgoing::State::kFailed) {
    tell(asked.target,
         [&](ConnectionObserver& observer) { observer.failed(asked.request_id, outgoing.refusal()); });
    return;
  }
  kernel_epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, outgoing.fd(), nullptr);
  const int fd = outgoing.give_away();
  const EstablishedConnection arrived{fd,   outgoing.welcomer(), asked.to, asked.from, asked.target,
                                      true, asked.request_id};
  if (!tell(asked.target, [&](ConnectionObserver& observer) { observer.arrived(arrived); })) close_kept(fd);
}

void ConnectionListener::receive_for_cm(ConnectionObserver* observer) {
  if (!is_open_) return;
  std::lock_guard lock(cm_mutex_);
  cm_ = observer;
}

// ---- both ----

void ConnectionListener::look_at_addresses(int64_t now) {
  if (now < look_at_addresses_ns_) return;
  const int error = follow_addresses(membership_->directory(), membership_->node(), machine_has);
  look_at_addresses_ns_ = error == ETIMEDOUT ? now + kAddressesPause : kNever;
  if (error != 0 && error != ETIMEDOUT)
    VERBENA_WARN(addresses_changed, "addresses have changed, and the node cannot say so: errno %d", error);
}

int64_t ConnectionListener::serve() {
  if (!is_open_) return kNever;
  begin_requests();
  take_passed_connections();
  epoll_event events[64];
  const int count = kernel_epoll_wait(epoll_fd_, events, 64, 0);
  const int64_t now = now_ns();
  for (int i = 0; i < count; ++i) {
    const uint64_t token = events[i].data.u64;
    if (token < listeners_.size()) continue;  // after those that are here already
    if (token == kAddressesToken) {
      drain_address_watch(addresses_);
      look_at_addresses_ns_ = now;
    } else if (Incoming* const in = incoming_.find(token)) {
      serve_incoming(token, *in);
    } else if (const auto out = outgoing_.find(token); out != outgoing_.end()) {
      if (!serve_outgoing(token, *out->second, now, true)) outgoing_.erase(out);
    }
  }
  for (int i = 0; i < count; ++i)
    if (events[i].data.u64 < listeners_.size()) accept_all(listeners_[events[i].data.u64], now);
  look_at_addresses(now);
  int64_t next = look_at_addresses_ns_;
  for (auto i = outgoing_.begin(); i != outgoing_.end();) {
    Outgoing& outgoing = *i->second;
    const bool goes_on = outgoing.due_ns() > now || serve_outgoing(i->first, outgoing, now, false);
    if (goes_on) next = std::min(next, outgoing.due_ns());
    i = goes_on ? std::next(i) : outgoing_.erase(i);
  }
  while (const std::unique_ptr<Incoming> late = incoming_.take_expired(now))
    note(late->peer(), Refusal::kSilent, 0, "refused");
  next = std::min(next, incoming_.deadline_ns());
  for (size_t i = 0; i < listeners_.size(); ++i) {
    Listener& listener = listeners_[i];
    if (listener.resume_ns == 0) continue;
    if (listener.resume_ns <= now) {
      listener.resume_ns = 0;
      watch(listener.fd, i, EPOLLIN);
    } else {
      next = std::min(next, listener.resume_ns);
    }
  }
  return next;
}

}  // namespace verbena::wire
