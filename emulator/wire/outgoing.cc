// SPDX-License-Identifier: BSD-2-Clause
#include "wire/outgoing.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "fabric/fork_descriptors.h"

namespace verbena::wire {
namespace {

// connect(2): the kernel's errno as a Refusal.
struct Row {
  int error;
  Refusal refusal;
};
constexpr Row kRows[] = {
    {ECONNREFUSED, Refusal::kNotListening}, {ECONNRESET, Refusal::kClosed},
    {ETIMEDOUT, Refusal::kUnreachable},     {EHOSTUNREACH, Refusal::kUnreachable},
    {ENETUNREACH, Refusal::kUnreachable},   {EADDRNOTAVAIL, Refusal::kUnreachable},
    {EMFILE, Refusal::kNoResources},        {ENFILE, Refusal::kNoResources},
    {ENOMEM, Refusal::kNoResources},        {ENOBUFS, Refusal::kNoResources},
};

Refusal refusal_of(int error) {
  for (const Row& row : kRows)
    if (row.error == error) return row.refusal;
  return Refusal::kUnreachable;
}

int connect_from(const NetAddress& from, const NetAddress& to, uint16_t port, int* out) {
  sockaddr_storage where;
  socklen_t size = from.to_socket_address(0, &where);
  const int fd = socket(where.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  keep_from_children(fd);
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  // The port is chosen by connect(2), for this destination alone (ip(7)).
  setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
  int error = bind(fd, reinterpret_cast<const sockaddr*>(&where), size) == 0 ? 0 : errno;
  if (error == 0) {
    size = to.to_socket_address(port, &where);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&where), size) != 0 && errno != EINPROGRESS)
      error = errno;
  }
  if (error != 0) {
    no_longer_keep(fd);
    close(fd);
    return error;
  }
  *out = fd;
  return 0;
}

}  // namespace

void Outgoing::hang_up() {
  if (fd_ >= 0) {
    no_longer_keep(fd_);
    close(std::exchange(fd_, -1));
  }
  connecting_ = false;
  filled_ = 0;
}

int Outgoing::give_away() { return std::exchange(fd_, -1); }

Outgoing::State Outgoing::missed(int64_t now, Refusal refusal) {
  hang_up();
  refusal_ = refusal;
  // A living process listens: if nobody listens for a process called by its name, the process is gone. A
  // service gets a reply at once, too, as from a machine whose connection manager has no such listener.
  const bool gone = refusal == Refusal::kNotListening &&
                    (request_.target.process.somebody() || request_.target.kind == TargetKind::kCmListener);
  if (gone || !is_transient(refusal) || now >= request_.deadline_ns) return State::kFailed;
  // The listener is stopped: the next attempt probably meets another one, and should come soon. Or the
  // machine is far away: wait longer.
  if (refusal == Refusal::kSilent) patience_ = std::min(patience_ * 5 / 4, kLastPatience);
  if (refusal == Refusal::kUnreachable) patience_ = std::min(2 * patience_, kLastPatience);
  if (refusal == Refusal::kSilent) {
    due_ns_ = now;  // a silent listener is not tried again: another source port leads to another listener
  } else {
    due_ns_ = now + pause_;
    pause_ = std::min(2 * pause_, kLastPause);
  }
  due_ns_ = std::min(due_ns_, request_.deadline_ns);
  return State::kGoesOn;
}

Outgoing::State Outgoing::begin(int64_t now) {
  if (const int error = connect_from(request_.from, request_.to, request_.port, &fd_); error != 0)
    return missed(now, refusal_of(error));
  connecting_ = true;
  due_ns_ = std::min(now + patience_, request_.deadline_ns);
  return State::kGoesOn;
}

bool Outgoing::say(const uint8_t* bytes, size_t size) {  // little, into an empty buffer
  return send(fd_, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(size);
}

Outgoing::State Outgoing::connected(int64_t now) {
  int error = 0;
  socklen_t size = sizeof error;
  if (getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  if (error != 0) return missed(now, refusal_of(error));
  connecting_ = false;
  Hello hello{self_, request_.from, request_.to, request_.target, {}};
  if (getrandom(hello.nonce.data(), hello.nonce.size(), 0) != static_cast<ssize_t>(hello.nonce.size()))
    return missed(now, Refusal::kNoResources);
  handshake_.emplace(key_, hello);
  if (!say(handshake_->hello().data(), kHelloSize)) return missed(now, Refusal::kClosed);
  return State::kGoesOn;
}

Outgoing::State Outgoing::read(int64_t now) {
  while (const size_t wanted = handshake_->wanted()) {
    const ssize_t got = recv(fd_, bytes_.data() + filled_, wanted - filled_, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return State::kGoesOn;
    if (got <= 0) return missed(now, Refusal::kClosed);
    filled_ += static_cast<size_t>(got);
    if (filled_ < wanted) continue;
    filled_ = 0;
    if (handshake_->step() == InitiatorHandshake::Step::kWelcome) {
      handshake_->welcome_arrived(std::span(bytes_).first<kWelcomeSize>());
      continue;
    }
    handshake_->challenge_arrived(bytes_);
    const bool proves =
        handshake_->step() == InitiatorHandshake::Step::kWelcome || handshake_->refusal() == Refusal::kKey;
    if (proves && !say(handshake_->proof().data(), kProofSize)) return missed(now, Refusal::kClosed);
    due_ns_ =
        // a process is there; it may have to pass the connection on
        std::min(now + 2 * patience_, request_.deadline_ns);
  }
  if (handshake_->step() == InitiatorHandshake::Step::kDone) return State::kConnected;
  return missed(now, handshake_->refusal());
}

Outgoing::State Outgoing::progress(int64_t now, bool ready) {
  if (fd_ < 0) {
    if (now >= request_.deadline_ns && refusal_ != Refusal::kNone) return State::kFailed;
    return now >= due_ns_ ? begin(now) : State::kGoesOn;
  }
  if (ready) {
    const State state = connecting_ ? connected(now) : read(now);
    if (state != State::kGoesOn || fd_ < 0) return state;
  }
  if (now < due_ns_) return State::kGoesOn;
  return missed(now, connecting_ ? Refusal::kUnreachable : Refusal::kSilent);
}

}  // namespace verbena::wire
