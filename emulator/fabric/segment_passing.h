// SPDX-License-Identifier: BSD-2-Clause
//
// How a peer gets hold of an adapter's segment: the owner's service thread listens on a unix socket in its slot
// folder and hands two descriptors to whoever of the same uid connects: the segment (memfd) and its own
// /proc/self/mem. The latter belongs to the address space, not to the pid: after exec or death it reads and
// writes nothing (proc(5)).
#pragma once

#include <cstdint>
#include <string>

#include "fabric/descriptor.h"

namespace verbena {

struct PassedSegment {
  int segment_fd = -1;
  int memory_fd = -1;  // -1: the owner could not open it
  int32_t pid = 0;     // of the process that listens, as this process's pid namespace calls it
};

// The listening socket for `folder`, non-blocking, close-on-exec; -1 and errno.
int listen_for_peers(const std::string& folder);

// Owner: accepts everybody who waits and hands over. Bounded: never blocks on a client. False: somebody waits and
// cannot be served now, as the process has no descriptor left.
bool serve_peers(int listener, int segment_fd, int memory_fd);

// Peer: has asked, and has no answer yet.
class SegmentRequest {
 public:
  // Asks the owner of `folder`, and does not wait. 0; ENOENT, ECONNREFUSED: it is gone; EAGAIN: too many have asked and
  // wait; EPROTO: it is another user's; EMFILE.
  int begin(const std::string& folder);
  // Until the answer is there, for `timeout_ms`, or until a signal comes.
  void wait(int timeout_ms) const;
  // The answer: 0, and the caller owns the descriptors; EAGAIN: it is not there yet; otherwise as begin().
  int take(PassedSegment* out) const;

 private:
  Descriptor socket_;
  int32_t pid_ = 0;
};

// All of it. Waits at most `timeout_ms`. ETIMEDOUT: the owner does not answer (stopped?); otherwise as above.
int ask_for_segment(const std::string& folder, int timeout_ms, PassedSegment* out);

}  // namespace verbena
