// SPDX-License-Identifier: BSD-2-Clause
//
// Requests to another process of the node, for work that only that process can do. A request is one message
// to a unix socket in the process's slot folder, together with one end of a socket pair for the reply. The
// service thread of that process replies. The contents are the users' business. Treat the bytes of a message
// as untrusted.
#pragma once

#include <cstddef>
#include <string>

#include "fabric/descriptor.h"

namespace verbena {

inline constexpr size_t kMaxMessage = 1024;  // bytes of a request or a reply

// Writes the reply and returns its length, at most kMaxMessage. 0: no reply. Must not block. `passed` came
// with the request, and is closed unless the handler takes it (Descriptor::release).
using ServeRequest = size_t (*)(void* context, const std::byte* request, size_t size, std::byte* reply,
                                  Descriptor& passed);

// Opens the request socket in `folder`, non-blocking, close-on-exec. -1 and errno on failure.
int listen_for_requests(const std::string& folder);

// Owner: serves the requests that have come, a few at most. Never blocks.
void serve_requests(int listener, ServeRequest handler, void* context);

// Sends a request to the owner of `folder` and waits at most `timeout_ms` for the reply. `reply` has space
// for kMaxMessage bytes.
// - 0: *reply_size is the length of the reply.
// - ENOENT, ECONNREFUSED: the process is gone.
// - ETIMEDOUT: the process does not reply; it may be stopped.
// - Other errno: no descriptors, no memory.
int send_request(const std::string& folder, const void* request, size_t size, std::byte* reply,
                 size_t* reply_size, int timeout_ms);

// Passes a descriptor to the owner of `folder`, with a message that needs no reply. Never blocks.
// - EAGAIN: too many messages are queued there.
// - ENOENT, ECONNREFUSED: the process is gone.
// - Other errno: no descriptors, no memory.
int offer(const std::string& folder, const void* message, size_t size, int descriptor);

}  // namespace verbena
