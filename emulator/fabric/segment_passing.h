// SPDX-License-Identifier: BSD-2-Clause
//
// How a peer gets an adapter's segment: a service of the owner's socket (service_socket.h). To each process
// of the same uid that asks, the owner passes two descriptors: the segment (memfd) and its own
// /proc/self/mem. The latter belongs to the address space, not to the pid: after exec or death it reads and
// writes nothing (proc(5)).
#pragma once

#include <cstdint>
#include <string>

#include "fabric/service_socket.h"

namespace verbena {

struct PassedSegment {
  int segment_fd = -1;
  int memory_fd = -1;  // -1: the owner could not open it
  int32_t pid = 0;     // of the process that listens, in this process's pid namespace
};

// Owner: serves a call of ServiceNumber::kSegment. memory_fd -1: it could not be opened.
void pass_segment(const ServiceCall& call, int segment_fd, int memory_fd);

// Peer: a request without a reply yet.
class SegmentRequest {
 public:
  // Sends a request to `owner`, without waiting. 0; ENOENT, ECONNREFUSED: the process is gone;
  // EAGAIN: too many requests are queued there; EPROTO: the process belongs to another user; EMFILE.
  int begin(const SlotAddress& owner);
  // Waits until the reply is there, for at most `timeout_ms`, or until a signal comes.
  void wait(int timeout_ms) const;
  // Takes the reply. 0: the caller owns the descriptors. EAGAIN: no reply yet. Otherwise as begin().
  int take(PassedSegment* out) const;

 private:
  MessageSocket connection_;
};

// All three steps. Waits at most `timeout_ms`. ETIMEDOUT: the owner does not reply (it may be stopped).
// Otherwise as above.
int ask_for_segment(const SlotAddress& owner, int timeout_ms, PassedSegment* out);

}  // namespace verbena
