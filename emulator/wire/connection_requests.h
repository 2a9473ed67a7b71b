// SPDX-License-Identifier: BSD-2-Clause
//
// How connections to other nodes are requested: the side of the connection listener (connection_listener.h)
// that its users see.
#pragma once

#include <cstdint>

#include "wire/net_address.h"
#include "wire/target.h"

namespace verbena::wire {

class ConnectionRequests {
 public:
  // Requests a connection to `target` at the node with address `to`, from the address `from` of this node
  // (all zero: the first of the same family). Returns the request id at once; it is never 0. Attempts are
  // repeated with growing pauses while that may help (is_transient()) and until `deadline_ns`
  // (CLOCK_MONOTONIC). Then failed() reports the last reason.
  // - A listener that does not react (its process is stopped) is bypassed: other attempts meet other
  //   listeners.
  // - Nobody listens, and the target is a process by its name (kProcess, kCmProcess) or a service
  //   (kCmListener): the target is gone, and failed() reports that at once.
  virtual uint64_t connect(const NetAddress& to, const NetAddress& from, const Target& target,
                           int64_t deadline_ns) = 0;

  // The end of the request is not reported any more, unless it is being reported at this moment. The peer may
  // have the connection already, and then sees it closed.
  virtual void cancel(uint64_t request_id) = 0;

 protected:
  ~ConnectionRequests() = default;
};

}  // namespace verbena::wire
