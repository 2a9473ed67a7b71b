// SPDX-License-Identifier: BSD-2-Clause
//
// Why two processes of different nodes did not connect. Values of the first part are sent (handshake.h) and
// fixed. Values of the second part are found by the connecting process itself.
#pragma once

#include <cstdint>

namespace verbena::wire {

enum class Refusal : uint32_t {
  kNone = 0,
  kVersion = 1,  // the other end has another version of the protocol
  kKey = 2,      // the two nodes have different keys
  kAddress = 3,  // the called address is not one of that node's
  kNobody = 4,   // no process of that node has the target
  kBusy = 5,     // the target's process has no space now (stopped?); worth another try
  kMalformed = 6,
  kSelf = 7,  // a node does not connect to itself

  kSilent = 100,        // connected, but no reply in time
  kUnreachable = 101,   // no route, or no reply from the machine
  kNotListening = 102,  // the machine is there, and no process listens at the port
  kClosed = 103,        // closed by the other end during the handshake
  kNoResources = 104,   // no descriptors or memory here
  kCancelled = 105,     // the connection listener was closed
};

// True: the same request may succeed later without a change of the configuration.
bool is_transient(Refusal refusal);

// A text for the log and the doctor, for example "nobody there has that number".
const char* words(Refusal refusal);

}  // namespace verbena::wire
