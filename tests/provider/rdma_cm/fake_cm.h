// SPDX-License-Identifier: BSD-2-Clause
//
// A test double of the connection manager: it returns what it was told to, records the calls, and raises the
// events that a test wants, so that the command layer can be tested without a node, peers or the preload.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <functional>
#include <string>

#include "cm/cm.h"

namespace verbena::cm {

struct Id {
  PortSpace space;
  ibv_qp_type type;
  EventHandler handler;
  std::atomic<void*> context;
};

}  // namespace verbena::cm

namespace verbena::test {

struct FakeManager {
  int error = 0;          // what every function that can fail returns
  std::string last;       // the function that was called last
  int alive = 0;          // ids
  cm::Route route = {};   // what query returns
  ibv_qp_attr attr = {};  // what init_qp_attributes returns
  int mask = 0;           // likewise
  cm::ConnectionParameters parameters = {};
  bool parameters_given = false;
  cm::Ece ece = {};
  int backlog = 0;
  uint8_t reason = 0;
  int value = 0;  // of an option
  uint32_t timeout_ms = 0;
  sockaddr_storage source = {}, destination = {};
  void* join = nullptr;
  bool send_only = false;
  cm::Id* newest = nullptr;
  cm::Event during_call = {};  // raised by the next call of `raise_in`
  std::string raise_in;
  std::function<void()> then;  // runs after that
};

extern FakeManager fake;

// Raises the event through the handler of its listener, or of its id. Returns what the handler returns; a
// connection request that is refused loses its id, as with the service.
bool raise(const cm::Event& event);

// A connection request that arrives at `listener`.
bool raise_request(cm::Id* listener, cm::Event event = {});

// Does the service thread's work for pipes that have no reader any more; waits up to five seconds for one.
// Returns how many there were.
int end_abandoned_pipes();

// Does the service thread's work for calls that are due later: waits for the time of each, and calls, until
// there is none. Returns how many there were.
int make_later_calls();

}  // namespace verbena::test
