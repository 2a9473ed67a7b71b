// SPDX-License-Identifier: BSD-2-Clause
#include "fabric/segment_passing.h"

#include <errno.h>

#include <chrono>
#include <span>

#include "no_cancellation.h"

namespace verbena {

void pass_segment(const ServiceCall& call, int segment_fd, int memory_fd) {
  const uint8_t count = memory_fd >= 0 ? 2 : 1;
  const int fds[] = {segment_fd, memory_fd};
  static_cast<void>(call.connection.send({&count, 1}, std::span<const int>(fds).first(count)));
}

int SegmentRequest::begin(const SlotAddress& owner) {
  const int error = call_service(owner, ServiceNumber::kSegment, {}, &connection_);
  return error == EPERM ? EPROTO : error;
}

void SegmentRequest::wait(int timeout_ms) const { connection_.wait(timeout_ms); }

int SegmentRequest::take(PassedSegment* out) const {
  uint8_t count = 0;
  Descriptor passed[2];
  bool lost = false;
  const ssize_t got = connection_.receive({&count, 1}, passed, &lost);
  if (got < 0) return got == -ECONNRESET ? ECONNREFUSED : static_cast<int>(-got);
  if (got == 0) return ECONNREFUSED;
  const size_t came = passed[1].fd >= 0 ? 2 : passed[0].fd >= 0 ? 1 : 0;
  if (came == 0) return lost ? EMFILE : EPROTO;
  // If this process has not enough free descriptors, the kernel drops the rest (unix(7), MSG_CTRUNC).
  if (came != count) return EMFILE;
  *out = {passed[0].release(), passed[1].release(), connection_.peer_pid()};
  return 0;
}

int ask_for_segment(const SlotAddress& owner, int timeout_ms, PassedSegment* out) {
  const NoCancellation guard;  // the first message to a process comes here, too
  SegmentRequest request;
  int error = request.begin(owner);
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + std::chrono::milliseconds(timeout_ms);
  while (error == 0 && (error = request.take(out)) == EAGAIN) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    if (left <= 0) break;
    request.wait(static_cast<int>(left));
    error = 0;
  }
  return error == EAGAIN ? ETIMEDOUT : error;
}

}  // namespace verbena
