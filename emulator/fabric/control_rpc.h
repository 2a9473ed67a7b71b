// SPDX-License-Identifier: BSD-2-Clause
//
// Requests to another process of the node, for work that only that process can do: a service of its socket
// (service_socket.h). A request is one message, and so is the reply. The service thread of that process
// replies. The contents are the users' business. Treat the bytes of a message as untrusted.
#pragma once

#include <cstddef>
#include <string>

#include "fabric/descriptor.h"
#include "fabric/service_socket.h"

namespace verbena {

inline constexpr size_t kMaxMessage = kMaxServiceMessage;  // bytes of a request or a reply

// Writes the reply and returns its length, at most kMaxMessage. 0: no reply. Must not block. `passed` came
// with the request (offer()), or is none. It is closed unless the handler takes it (Descriptor::release).
using ServeRequest = size_t (*)(void* context, const std::byte* request, size_t size, std::byte* reply,
                                Descriptor& passed);

// Owner: serves a call of ServiceNumber::kRequest.
struct RequestHandler {
  ServeRequest serve = nullptr;
  void* context = nullptr;
};
void serve_request(const RequestHandler& handler, ServiceCall& call);

// Sends a request to `owner` and waits at most `timeout_ms` for the reply. `reply` has space
// for kMaxMessage bytes.
// - 0: *reply_size is the length of the reply.
// - ENOENT, ECONNREFUSED: the process is gone, or gives no reply.
// - ETIMEDOUT: the process does not reply; it may be stopped.
// - EMSGSIZE: longer than kMaxMessage.
// - Other errno: no descriptors, no memory.
int send_request(const SlotAddress& owner, const void* request, size_t size, std::byte* reply,
                 size_t* reply_size, int timeout_ms);

// Passes a descriptor to `owner`, with a message that needs no reply. -1: the message alone. Never blocks.
// - EAGAIN: too many messages are queued there.
// - ENOENT, ECONNREFUSED: the process is gone.
// - Other errno: no descriptors, no memory.
int offer(const SlotAddress& owner, const void* message, size_t size, int descriptor);

}  // namespace verbena
