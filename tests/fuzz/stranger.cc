// SPDX-License-Identifier: BSD-2-Clause
#include "stranger.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <utility>

#include "loopback_node.h"
#include "victim.h"

namespace verbena::fuzz {
namespace {

using namespace wire;

template <size_t size>
void hear_whole(int fd, std::array<uint8_t, size>* out) {
  require(recv(fd, out->data(), size, MSG_WAITALL) == static_cast<ssize_t>(size), "a peer with the key is answered");
}

}  // namespace

Stranger::Stranger(uint8_t from, uint64_t node, const Target& target)
    : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const linger at_once{1, 0};  // no connections left in TIME_WAIT
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  const int on = 1, little = 16384;
  setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &little, sizeof little);  // soon full if it does not read
  setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const timeval patience{30, 0};
  setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  sockaddr_storage where;
  socklen_t size = loopback(from).to_socket_address(0, &where);
  require(bind(fd_, reinterpret_cast<const sockaddr*>(&where), size) == 0, "there is an address");
  size = loopback(kVictim).to_socket_address(kPort, &where);
  require(connect(fd_, reinterpret_cast<const sockaddr*>(&where), size) == 0, "somebody listens");
  InitiatorHandshake caller(fabric_key(), {{node, 1, 1}, loopback(from), loopback(kVictim), target, {}});
  const auto nothing = [] {};
  say(caller.hello().data(), kHelloSize, nothing);
  std::array<uint8_t, kChallengeSize> challenge;
  hear_whole(fd_, &challenge);
  caller.challenge_arrived(challenge);
  say(caller.proof().data(), kProofSize, nothing);
  std::array<uint8_t, kWelcomeSize> answer;
  hear_whole(fd_, &answer);
  caller.welcome_arrived(answer);
  require(caller.step() == InitiatorHandshake::Step::kDone, "a peer with the key is admitted");
}

Stranger::~Stranger() { close(fd_); }

bool Stranger::say(const void* bytes, size_t size, const std::function<void()>& meanwhile) {
  const auto* next = static_cast<const uint8_t*>(bytes);
  auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (size != 0 && !over_) {
    const ssize_t sent = send(fd_, next, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      next += sent;
      size -= static_cast<size_t>(sent);
      deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
      continue;
    }
    if (errno != EAGAIN && errno != EWOULDBLOCK) over_ = true;
    require(std::chrono::steady_clock::now() < deadline, "what is sent is taken, or the connection ends");
    meanwhile();
    pollfd writable{fd_, POLLOUT, 0};
    ::poll(&writable, 1, 1);
  }
  return !over_;
}

void Stranger::wait() const {
  pollfd readable{fd_, POLLIN, 0};
  ::poll(&readable, 1, 1);
}

void Stranger::read() {
  uint8_t bytes[65536];
  for (;;) {
    const ssize_t got = recv(fd_, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK)) over_ = true;
    if (got <= 0) return;
    unread_.insert(unread_.end(), bytes, bytes + got);
  }
}

std::vector<cm::Frame> Stranger::hear_messages() {
  read();
  std::vector<cm::Frame> heard(unread_.size() / sizeof(cm::Frame));
  const size_t size = heard.size() * sizeof(cm::Frame);
  if (size != 0) std::memcpy(heard.data(), unread_.data(), size);
  unread_.erase(unread_.begin(), unread_.begin() + static_cast<ptrdiff_t>(size));
  return heard;
}

std::vector<Heard> Stranger::hear() {
  read();
  std::vector<Heard> heard;
  size_t at = 0;
  for (;;) {
    Frame frame;
    const auto* begin = reinterpret_cast<const std::byte*>(unread_.data() + at);
    const Decoded decoded = decode(begin, unread_.size() - at, &frame);
    require(decoded != Decoded::kMalformed, "what is said are frames");
    const size_t whole = decoded == Decoded::kFrame ? size_t{frame.head_size} + frame.payload : SIZE_MAX;
    if (whole > unread_.size() - at) break;
    const uint8_t* const payload = unread_.data() + at + frame.head_size;
    heard.push_back({frame.head, {payload, payload + frame.payload}});
    at += whole;
  }
  unread_.erase(unread_.begin(), unread_.begin() + static_cast<ptrdiff_t>(at));
  const auto& secret = Victim::secret();
  for (const Heard& each : heard)
    require(memmem(each.bytes.data(), each.bytes.size(), secret.data(), secret.size()) == nullptr,
            "nothing is told that may not be read");
  return heard;
}

}  // namespace verbena::fuzz
