// SPDX-License-Identifier: BSD-2-Clause
//
// A server of rdma_cm in a process of its own, which follows commands.
#pragma once

#include "unit/cm/scene.h"
#include "unit/common/child.h"

namespace verbena::cm {

inline constexpr uint16_t kServerPort = 7471;

// What the process does. It says 'L' when it listens, then: 'r' wait for a request, 'a' accept it, 'e' wait
// until it is established, 'x' reject it, 'd' wait for the end, 't' and 'X' wait for a REJ (timeout,
// consumer), 'D' disconnect, 'q' quit. It answers each with 'y', or 'n' when something else happened.
inline int serve(const Child& child, PortSpace space) {
  ServiceHolder service;
  Inbox inbox;
  OwnedId listener = make_id(service, inbox, space), connection;
  bool good = bind_address(listener.get(), Ip("0.0.0.0", kServerPort)) == 0 && listen(listener.get(), 8) == 0;
  child.tell(good ? 'L' : 'n');
  for (;;) {
    const char word = child.hear();
    if (word == 0) return 1;
    if (word == 'q') return 0;
    good = true;
    if (word == 'r') {
      const Event event = inbox.next();
      good = event.type == EventType::kConnectRequest;
      if (good) connection.reset(event.id);
    }
    const ConnectionParameters given = parameters(0x22, "welcome");
    if (word == 'a') good = accept(connection.get(), &given, {}) == 0;
    if (word == 'e') good = inbox.next().type == EventType::kEstablished;
    if (word == 'x') good = reject(connection.get(), {}, 0) == 0;
    if (word == 'd') good = inbox.next().type == EventType::kDisconnected;
    if (word == 't') good = bool(next_is(inbox, EventType::kRejected, 4));
    if (word == 'X') good = bool(next_is(inbox, EventType::kRejected, 28));
    if (word == 'D') good = disconnect(connection.get()) == 0;
    child.tell(good ? 'y' : 'n');
  }
}

}  // namespace verbena::cm
