// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/service_socket.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "fabric/fork_descriptors.h"

namespace verbena {
namespace {

constexpr uint64_t kListenerToken = 0;
constexpr int kPeersAtATime = 64;

// What a first message begins with.
struct ServiceHeader {
  static constexpr uint32_t kMagic = 0x31'56'53'56;  // "VSV1"
  uint32_t magic = kMagic;
  uint32_t number = 0;
};
static_assert(sizeof(ServiceHeader) == 8);

using FirstMessage = std::array<uint8_t, sizeof(ServiceHeader) + kMaxServiceMessage>;

bool watch_readable(int epoll, int fd, uint64_t token) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = token;
  return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

bool no_descriptor_left(int error) { return error == EMFILE || error == ENFILE; }

}  // namespace

int ServiceSocket::open(const std::string& folder) {
  int error = listener_.listen_in(folder, kName, kServiceBacklog);
  if (error == 0) epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
  if (error == 0 && (epoll_fd_ < 0 || !watch_readable(epoll_fd_, listener_.fd(), kListenerToken)))
    error = errno;
  if (error != 0)
    close();
  else
    keep_from_children(epoll_fd_);
  return error;
}

void ServiceSocket::close() {
  silent_.clear();
  listener_.close();
  if (epoll_fd_ < 0) return;
  no_longer_keep(epoll_fd_);
  ::close(std::exchange(epoll_fd_, -1));
}

bool ServiceSocket::serve() {
  epoll_event events[kPeersAtATime];
  const int count = epoll_wait(epoll_fd_, events, kPeersAtATime, 0);
  if (count < 0 && errno != EINTR) forget_descriptor();
  bool served = true;
  for (int i = 0; i < count; ++i) {
    if (events[i].data.u64 == kListenerToken)
      served = accept_waiting();
    else
      serve_silent(events[i].data.u64);
  }
  return served;
}

// The program has closed a descriptor that it does not own. The number may be another's by now.
void ServiceSocket::forget_descriptor() {
  no_longer_keep(std::exchange(epoll_fd_, -1));
  close();
}

bool ServiceSocket::accept_waiting() {
  for (int i = 0; i < kPeersAtATime; ++i) {
    MessageSocket connection;
    const int error = connection.accept_from(listener_);
    if (no_descriptor_left(error) && !silent_.empty()) {
      silent_.erase(silent_.begin());
      continue;
    }
    if (error != 0) return error == EAGAIN;
    if (!serve_first(connection)) await_message(connection);
  }
  return true;
}

void ServiceSocket::await_message(MessageSocket& connection) {
  if (silent_.size() >= kMaxSilent) silent_.erase(silent_.begin());
  const uint64_t token = next_token_++;
  if (watch_readable(epoll_fd_, connection.fd(), token)) silent_.emplace(token, std::move(connection));
}

void ServiceSocket::serve_silent(uint64_t token) {
  auto found = silent_.extract(token);
  if (found.empty()) return;
  MessageSocket& connection = found.mapped();
  // A handler may keep the connection, and other threads may then use it.
  epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, connection.fd(), nullptr);
  if (!serve_first(connection)) await_message(connection);
}

// False: there is no message yet.
bool ServiceSocket::serve_first(MessageSocket& connection) {
  FirstMessage bytes;
  ServiceCall call;
  const ssize_t got = connection.receive(bytes, {&call.passed, 1});
  if (got == -EAGAIN) return false;
  call.connection = std::move(connection);
  ServiceHeader header;
  if (got < static_cast<ssize_t>(sizeof header) || got > static_cast<ssize_t>(bytes.size())) return true;
  std::memcpy(&header, bytes.data(), sizeof header);
  call.message = std::span<const uint8_t>(bytes).subspan(sizeof header, got - sizeof header);
  if (header.magic == ServiceHeader::kMagic) dispatch(header.number, call);
  return true;
}

void ServiceSocket::dispatch(uint32_t number, ServiceCall& call) {
  if (number == 0 || number > kServices) return;
  Registration& service = registrations_[number - 1];
  std::lock_guard lock(service.mutex);
  if (service.handler != nullptr) service.handler(service.context, call);
}

void ServiceSocket::serve_by(ServiceNumber service, ServiceHandler handler, void* context) {
  Registration& registration = registrations_[static_cast<uint32_t>(service) - 1];
  std::lock_guard lock(registration.mutex);
  registration.handler = handler;
  registration.context = context;
}

int call_service(const std::string& folder, ServiceNumber service, std::span<const uint8_t> message,
                 MessageSocket* connection, std::span<const int> passed, int wait_ms) {
  if (message.size() > kMaxServiceMessage) return EMSGSIZE;
  FirstMessage bytes;
  const ServiceHeader header{ServiceHeader::kMagic, static_cast<uint32_t>(service)};
  std::memcpy(bytes.data(), &header, sizeof header);
  std::copy(message.begin(), message.end(), bytes.begin() + sizeof header);
  if (const int error = connection->connect_to(folder, ServiceSocket::kName, wait_ms); error != 0)
    return error;
  // A new socket takes one message.
  const int error = connection->send({bytes.data(), sizeof header + message.size()}, passed);
  if (error != 0) connection->close();
  return error == EPIPE || error == ECONNRESET ? ECONNREFUSED : error;
}

}  // namespace verbena
