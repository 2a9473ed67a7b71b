// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/control_rpc.h"

#include <errno.h>

#include <algorithm>
#include <chrono>
#include <span>

namespace verbena {
namespace {

using RequestClock = std::chrono::steady_clock;

std::span<const uint8_t> bytes_of(const void* message, size_t size) {
  return {static_cast<const uint8_t*>(message), size};
}

int left_ms(RequestClock::time_point until) {
  const auto remaining = std::chrono::ceil<std::chrono::milliseconds>(until - RequestClock::now()).count();
  return static_cast<int>(std::max<int64_t>(remaining, 0));
}

// The size of the reply, or an errno < 0.
ssize_t await_reply(const MessageSocket& connection, std::byte* reply, RequestClock::time_point until) {
  const std::span room(reinterpret_cast<uint8_t*>(reply), kMaxMessage);
  for (;;) {
    const ssize_t got = connection.receive(room);
    if (got != -EAGAIN) return got;
    const int wait_ms = left_ms(until);
    if (wait_ms == 0) return -ETIMEDOUT;
    connection.wait(wait_ms);
  }
}

}  // namespace

void serve_request(const RequestHandler& handler, ServiceCall& call) {
  std::byte reply[kMaxMessage];
  const size_t size = handler.serve(handler.context, reinterpret_cast<const std::byte*>(call.message.data()),
                                    call.message.size(), reply, call.passed);
  if (size != 0) static_cast<void>(call.connection.send(bytes_of(reply, size)));
}

int send_request(const SlotAddress& owner, const void* request, size_t size, std::byte* reply,
                 size_t* reply_size, int timeout_ms) {
  const auto until = RequestClock::now() + std::chrono::milliseconds(timeout_ms);
  MessageSocket connection;
  const int error = call_service(owner, ServiceNumber::kRequest, bytes_of(request, size), &connection, {},
                                 std::max(timeout_ms, 1));
  if (error != 0) return error == EAGAIN ? ETIMEDOUT : error;
  const ssize_t got = await_reply(connection, reply, until);
  if (got == -ETIMEDOUT) return ETIMEDOUT;
  if (got <= 0 || got > static_cast<ssize_t>(kMaxMessage)) return ECONNREFUSED;
  *reply_size = static_cast<size_t>(got);
  return 0;
}

int offer(const SlotAddress& owner, const void* message, size_t size, int descriptor) {
  MessageSocket connection;
  const size_t count = descriptor >= 0 ? 1 : 0;
  return call_service(owner, ServiceNumber::kRequest, bytes_of(message, size), &connection,
                      {&descriptor, count});
}

}  // namespace verbena
