// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/service_socket.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "fabric/fork_descriptors.h"
#include "fabric/kernel_epoll.h"

namespace verbena {
namespace {

constexpr uint64_t kListenerToken = 0;
constexpr uint64_t kAbstractListenerToken = 1;
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
  return kernel_epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

bool no_descriptor_left(int error) { return error == EMFILE || error == ENFILE; }

}  // namespace

int ServiceSocket::open(const SlotAddress& own) {
  int error = listener_.listen_in(own.folder, kName, kServiceBacklog);
  if (error == 0) epoll_fd_ = kernel_epoll_create();
  if (error == 0 && (epoll_fd_ < 0 || !watch_readable(epoll_fd_, listener_.fd(), kListenerToken)))
    error = errno;
  if (error != 0) return close(), error;
  keep_from_children(epoll_fd_);
  if (!own.abstract_name.empty() && abstract_listener_.listen_as(own.abstract_name, kServiceBacklog) == 0)
    watch_readable(epoll_fd_, abstract_listener_.fd(), kAbstractListenerToken);
  return 0;
}

int ServiceSocket::open_again(const std::string& folder) {
  if (epoll_fd_ < 0) return EBADF;
  MessageSocket fresh;
  if (const int error = fresh.listen_in(folder, kName, kServiceBacklog); error != 0) return error;
  static_cast<void>(accept_waiting(listener_));  // who has found the deleted one before
  listener_ = std::move(fresh);
  return watch_readable(epoll_fd_, listener_.fd(), kListenerToken) ? 0 : errno;
}

void ServiceSocket::close() {
  silent_.clear();
  listener_.close();
  abstract_listener_.close();
  if (epoll_fd_ < 0) return;
  no_longer_keep(epoll_fd_);
  ::close(std::exchange(epoll_fd_, -1));
}

bool ServiceSocket::serve() {
  epoll_event events[kPeersAtATime];
  const int count = kernel_epoll_wait(epoll_fd_, events, kPeersAtATime, 0);
  if (count < 0 && errno != EINTR) forget_descriptor();
  bool served = true;
  for (int i = 0; i < count; ++i) {
    if (events[i].data.u64 == kListenerToken)
      served = accept_waiting(listener_) && served;
    else if (events[i].data.u64 == kAbstractListenerToken)
      served = accept_waiting(abstract_listener_) && served;
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

bool ServiceSocket::accept_waiting(const MessageSocket& listener) {
  for (int i = 0; i < kPeersAtATime; ++i) {
    MessageSocket connection;
    const int error = connection.accept_from(listener);
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
  kernel_epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, connection.fd(), nullptr);
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

int call_service(const SlotAddress& to, ServiceNumber service, std::span<const uint8_t> message,
                 MessageSocket* connection, std::span<const int> passed, int wait_ms) {
  if (message.size() > kMaxServiceMessage) return EMSGSIZE;
  FirstMessage bytes;
  const ServiceHeader header{ServiceHeader::kMagic, static_cast<uint32_t>(service)};
  std::memcpy(bytes.data(), &header, sizeof header);
  std::copy(message.begin(), message.end(), bytes.begin() + sizeof header);
  int error = connection->connect_to(to.folder, ServiceSocket::kName, wait_ms);
  if ((error == ENOENT || error == ECONNREFUSED) && !to.abstract_name.empty())
    error = connection->connect_to_abstract(to.abstract_name, wait_ms);
  if (error != 0) return error;
  // A new socket takes one message.
  error = connection->send({bytes.data(), sizeof header + message.size()}, passed);
  if (error != 0) connection->close();
  return error == EPIPE || error == ECONNRESET ? ECONNREFUSED : error;
}

}  // namespace verbena
