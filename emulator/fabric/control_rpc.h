// SPDX-License-Identifier: BSD-2-Clause
//
// Asking another process of the node to do what only it can do: a question is one message to a unix socket in
// its slot folder, together with the end of a socket pair that the answer comes back through. Its service
// thread answers. What the messages say is the askers' affair; their bytes are a stranger's.
#pragma once

#include <cstddef>
#include <string>

#include "fabric/descriptor.h"

namespace verbena {

inline constexpr size_t kMaxMessage = 1024;  // bytes of a question or an answer

// Writes the answer, and returns its length, at most kMaxMessage; 0: there is none. Must not wait for
// anybody. `passed` came with the question, and is closed unless it is taken (Descriptor::release).
using ServeRequest = size_t (*)(void* context, const std::byte* request, size_t size, std::byte* reply,
                                  Descriptor& passed);

// The socket for questions in `folder`, non-blocking, close-on-exec; -1 and errno.
int listen_for_requests(const std::string& folder);

// Owner: answers those that have come, not more than a few. Never blocks.
void serve_requests(int listener, ServeRequest handler, void* context);

// Asks the owner of `folder`, and waits at most `timeout_ms` for the answer. `reply` has room for
// kMaxMessage bytes. ENOENT, ECONNREFUSED: it is gone; ETIMEDOUT: it does not answer (stopped?); other errno:
// no descriptors, no memory.
int send_request(const std::string& folder, const void* request, size_t size, std::byte* reply,
                 size_t* reply_size, int timeout_ms);

// Gives the owner of `folder` a descriptor, with a message that wants no answer. Does not wait: EAGAIN, too much waits
// there already; ENOENT, ECONNREFUSED: it is gone; other errno: no descriptors, no memory.
int offer(const std::string& folder, const void* message, size_t size, int descriptor);

}  // namespace verbena
