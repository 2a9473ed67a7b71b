// SPDX-License-Identifier: BSD-2-Clause
//
// Why two processes of different nodes did not come together. The first part travels (handshake.h): its
// numbers are fixed. The second is what the caller finds out by himself.
#pragma once

#include <cstdint>

namespace verbena::wire {

enum class Refusal : uint32_t {
  kNone = 0,
  kVersion = 1,  // the other end speaks another version of the protocol
  kKey = 2,      // the two nodes have different keys
  kAddress = 3,  // the address that was called is not one of that node's
  kNobody = 4,   // no process of that node has the target
  kBusy = 5,     // the target's process has no room now (stopped?); worth another try
  kMalformed = 6,
  kSelf = 7,  // a node does not call itself

  kSilent = 100,        // connected, but no answer within the patience
  kUnreachable = 101,   // no route, no answer from the machine
  kNotListening = 102,  // the machine is there, nobody listens at the port
  kClosed = 103,        // closed by the other end in the middle of the handshake
  kNoResources = 104,   // no descriptors or memory here
  kCancelled = 105,     // the connection listener was closed
};

// Whether the same call may succeed later without anybody changing the configuration.
bool is_transient(Refusal refusal);

// In words, for the log and the doctor: "nobody there has that number".
const char* words(Refusal refusal);

}  // namespace verbena::wire
