// SPDX-License-Identifier: BSD-2-Clause
#include "support/link.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <stdexcept>
#include <thread>

#include "suite/test.h"
#include "support/cm_messages.h"
#include "support/host.h"

namespace conformance {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds answer_time = std::chrono::seconds(15);  // for any request, in addition to its work
constexpr milliseconds idle_time = std::chrono::minutes(10);    // a client that is silent for so long is gone
constexpr milliseconds send_time = std::chrono::seconds(30);

// Waits for the descriptor; false when the time is over.
bool ready(int descriptor, short events, Clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    pollfd waiting{descriptor, events, 0};
    const int count = poll(&waiting, 1, static_cast<int>(left));
    if (count > 0) return true;
    if (count < 0 && errno != EINTR) return false;
  }
}

bool send_all(int descriptor, const std::string& bytes, Clock::time_point deadline) {
  for (size_t sent = 0; sent < bytes.size();) {
    if (!ready(descriptor, POLLOUT, deadline)) return false;
    const ssize_t count =
        send(descriptor, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno != EAGAIN && errno != EINTR) return false;
    if (count > 0) sent += static_cast<size_t>(count);
  }
  return true;
}

bool receive_all(int descriptor, std::string& bytes, size_t length, Clock::time_point deadline) {
  bytes.clear();
  while (bytes.size() < length) {
    char buffer[65536];
    if (!ready(descriptor, POLLIN, deadline)) return false;
    const ssize_t count =
        recv(descriptor, buffer, std::min(sizeof buffer, length - bytes.size()), MSG_DONTWAIT);
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return false;
    if (count > 0) bytes.append(buffer, static_cast<size_t>(count));
  }
  return true;
}

// Reads the length, then `head` and `body`. False at the end of the stream, when it is late or too long.
bool send_frame(int descriptor, const std::string& head, const std::string& body,
                Clock::time_point deadline) {
  wire::Writer frame;
  frame(static_cast<uint32_t>(head.size() + body.size()));
  frame.bytes += head;
  frame.bytes += body;
  return send_all(descriptor, frame.bytes, deadline);
}

bool receive_frame(int descriptor, std::string& frame, size_t least, Clock::time_point deadline) {
  std::string head;
  if (!receive_all(descriptor, head, sizeof(uint32_t), deadline)) return false;
  uint32_t length = 0;
  wire::Reader reader(head);
  reader(length);
  if (length < least || length > wire::largest_message) return false;
  return receive_all(descriptor, frame, length, deadline);
}

// Requests that tell of the device of the far end alone: objects on it, and their states. What others miss
// the near end may have caused.
bool is_of_the_far_device(wire::Kind kind) {
  using wire::CmKind;
  using wire::Kind;
  constexpr Kind objects[] = {Kind::make, Kind::connect, Kind::query, Kind::register_region,
                              Kind::bind_window};
  constexpr CmKind identifiers[] = {CmKind::open, CmKind::listen,  CmKind::reserve,
                                    CmKind::bind, CmKind::make_qp, CmKind::join};
  const auto is_kind = [kind](auto one) { return static_cast<Kind>(one) == kind; };
  return std::any_of(std::begin(objects), std::end(objects), is_kind) ||
         std::any_of(std::begin(identifiers), std::end(identifiers), is_kind);
}

int connect_once(const std::string& host, const std::string& port, Clock::time_point deadline) {
  addrinfo hints = {}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &list) != 0) return -1;
  int descriptor = -1;
  for (addrinfo* each = list; each != nullptr && descriptor < 0; each = each->ai_next) {
    descriptor = socket(each->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (descriptor < 0) continue;
    int error = connect(descriptor, each->ai_addr, each->ai_addrlen) == 0 ? 0 : errno;
    socklen_t size = sizeof error;
    if (error == EINPROGRESS && ready(descriptor, POLLOUT, deadline))
      getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error == 0) break;
    close(descriptor);
    descriptor = -1;
  }
  freeaddrinfo(list);
  return descriptor;
}

}  // namespace

void Link::fail(const std::string& what) {
  throw Deviation{"the host of the far end: " + what, Where::current()};
}

std::string Link::outcome_of(Outcome outcome, std::string answer) {
  switch (outcome) {
    case Outcome::answer:
      return answer;
    case Outcome::deviation:
      throw Deviation{answer, Where::current()};
    case Outcome::not_claimed:
      throw NotClaimed{answer};
    case Outcome::not_tested:
      throw NotTested{answer};
    case Outcome::malformed:
      break;
  }
  fail("it does not understand " + answer);
}

std::string LoopbackLink::exchange(wire::Kind kind, const std::string& request, milliseconds) {
  auto [outcome, answer] = host_.answer(kind, request);
  return outcome_of(outcome, std::move(answer));
}

StreamLink::StreamLink(int descriptor) : descriptor_(descriptor) {
  const int on = 1;
  setsockopt(descriptor_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // fails, as it should, on other sockets
  // The version first: what follows it may be otherwise in another one.
  const std::string answer =
      exchange(wire::Kind::hello, wire::to_bytes(wire::Hello{}), std::chrono::seconds(15));
  try {
    uint32_t its_version = 0;
    wire::Reader reader(answer);
    reader(its_version);
    if (its_version != wire::version)
      fail("it is of another version: its messages are version " + std::to_string(its_version) +
           ", those of this program version " + std::to_string(wire::version));
    peer_ = wire::from_bytes<wire::HelloAnswer>(answer);
  } catch (const wire::Malformed&) {
    fail("its answer is malformed");
  }
}

StreamLink::~StreamLink() { close(descriptor_); }

std::string StreamLink::exchange(wire::Kind kind, const std::string& request, milliseconds work) {
  const std::lock_guard lock(one_at_a_time_);
  const auto deadline = Clock::now() + scaled(answer_time) + work;
  wire::Writer head;
  head(static_cast<uint16_t>(kind));
  trace("far: request " + std::to_string(static_cast<unsigned>(kind)));
  if (!send_frame(descriptor_, head.bytes, request, deadline)) end_with("it takes no requests, or has ended");
  std::string frame;
  if (!receive_frame(descriptor_, frame, 1, deadline)) end_with("it does not answer, or has ended");
  const auto outcome = static_cast<Outcome>(frame[0]);
  std::string answer = frame.substr(1);
  if (is_of_another_device_ && outcome == Outcome::not_claimed)
    throw FarNotClaimed{{"the far end: " + answer}};
  if (is_of_another_device_ && outcome == Outcome::deviation && is_of_the_far_device(kind))
    throw NotTested{"the far end: " + answer};
  return outcome_of(outcome, std::move(answer));
}

void StreamLink::end_with(const std::string& what) const {
  if (is_of_another_device_) throw NotTested{"the host of the far end: " + what};
  fail(what);
}

std::unique_ptr<StreamLink> StreamLink::to(const std::string& address, milliseconds time) {
  const auto [host, port] = host_and_port(address);
  const auto deadline = Clock::now() + time;
  do {
    if (const int descriptor = connect_once(host, port, deadline); descriptor >= 0) {
      auto link = std::make_unique<StreamLink>(descriptor);
      link->is_of_another_device_ = true;
      return link;
    }
    std::this_thread::sleep_for(milliseconds(50));  // between two attempts
  } while (Clock::now() < deadline);
  throw std::runtime_error("no verbs-conformance --serve at " + host + ", port " + port);
}

void serve_stream(int descriptor, Host& host) {
  const int on = 1;
  setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  std::string frame;
  while (receive_frame(descriptor, frame, sizeof(uint16_t), Clock::now() + idle_time)) {
    uint16_t kind = 0;
    const std::string head = frame.substr(0, sizeof kind);
    wire::Reader reader(head);
    reader(kind);
    const auto [outcome, answer] = host.answer(static_cast<wire::Kind>(kind), frame.substr(sizeof kind));
    if (!send_frame(descriptor, std::string(1, static_cast<char>(outcome)), answer, Clock::now() + send_time))
      break;
    if (outcome == Outcome::malformed) break;
  }
  close(descriptor);
}

std::pair<std::string, std::string> host_and_port(const std::string& address) {
  const std::string port = std::to_string(default_tcp_port);
  if (address.starts_with('[')) {
    const size_t end = address.find(']');
    if (end == std::string::npos) return {address, port};
    const bool named = address.compare(end + 1, 1, ":") == 0 && end + 2 < address.size();
    return {address.substr(1, end - 1), named ? address.substr(end + 2) : port};
  }
  const size_t colon = address.find(':');
  if (colon == std::string::npos || address.find(':', colon + 1) != std::string::npos) return {address, port};
  return {address.substr(0, colon), colon + 1 < address.size() ? address.substr(colon + 1) : port};
}

}  // namespace conformance
