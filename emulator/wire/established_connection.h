// SPDX-License-Identifier: BSD-2-Clause
//
// What the connection listener (connection_listener.h) reports.
#pragma once

#include <cstdint>
#include <functional>

#include "wire/net_address.h"
#include "wire/process_id.h"
#include "wire/refusal.h"
#include "wire/target.h"

namespace verbena::wire {

struct EstablishedConnection {
  // Connected, authenticated, non-blocking, close-on-exec, TCP_NODELAY. The observer owns it. It is kept from
  // forked children (fabric/fork_descriptors.h): the owner ends that, and closes it.
  int fd = -1;
  ProcessId peer;
  NetAddress peer_address;  // the source address, or the address of the request
  NetAddress own_address;   // one of this node's
  Target target;            // what was asked for, here or there
  bool begun_here = false;
  uint64_t request_id = 0;  // of connect(); 0 unless begun_here
};

class ConnectionObserver {
 public:
  // Each request ends in one of these two, once, unless it is cancelled.
  virtual void arrived(const EstablishedConnection& arrived) = 0;
  virtual void failed(uint64_t request_id, Refusal refusal) = 0;
  // Before that, perhaps several times: a process at the other end has accepted the connection, and has not
  // replied yet.
  virtual void taken([[maybe_unused]] uint64_t request_id) {}
  // A process of another node has begun the connection and is to be told whether it may enter. `welcome`
  // tells it so; true: the observer owns the connection, as with arrived(). Returns kNone then. Otherwise the
  // listener closes the connection:
  // - kClosed: `welcome` was false, the other process has closed it.
  // - another refusal: the other process is told that one. With kBusy it tries again (Outgoing::kFirstPause).
  virtual Refusal let_in(const EstablishedConnection& arriving, const std::function<bool()>& welcome) {
    if (!welcome()) return Refusal::kClosed;
    arrived(arriving);
    return Refusal::kNone;
  }

 protected:
  ~ConnectionObserver() = default;
};

}  // namespace verbena::wire
