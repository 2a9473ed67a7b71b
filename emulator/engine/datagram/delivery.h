// SPDX-License-Identifier: BSD-2-Clause
//
// Delivery of one datagram to a queue pair of this node whose memory can be reached: the responder's part of UD.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/datagram/datagram_header.h"
#include "engine/datagram/datagram_targets.h"
#include "engine/objects/requester_context.h"
#include "engine/rules/send_rules.h"

namespace verbena {

struct DeviceDescription;

inline constexpr uint32_t kMaxDatagram = 4096;  // bytes, without the GRH

// A whole message: space for its GRH, and the bytes of the program. A frame of a raw packet queue pair has no
// GRH.
struct DatagramMessage {
  DatagramHeader header;
  DatagramSource source{};
  uint32_t qkey = 0;
  uint32_t immediate = 0;
  uint32_t length = 0;  // with the 40 bytes
  uint32_t header_bytes = kGrhBytes;
  uint16_t pkey = 0;    // of the sender; 0: not known
  uint8_t flags = 0;    // CqeFlags
  bool solicited = false;
  bool may_wait = false;  // for a receive request
  bool to_group = false;  // multicast
  uint8_t bytes[kGrhBytes + kMaxDatagram];
};

// IBV_WR_SEND or IBV_WR_SEND_WITH_IMM.
inline uint8_t opcode_of(const DatagramMessage& message) {
  return (message.flags & kCqeWithImmediate) != 0 ? uint8_t{IBV_WR_SEND_WITH_IMM} : uint8_t{IBV_WR_SEND};
}

// A sender of datagrams towards the queue pairs of this node: a UD queue pair of this process, or the queue pairs of
// another process whose messages come as frames. One thread at a time.
struct DatagramSender {
  Process* process = nullptr;
  const DeviceDescription* device = nullptr;  // nullptr: the sender is not of this process
  uint32_t index = 0;                         // of the queue pair
  uint32_t incarnation = 0;
  bool may_be_eager = true;               // as RequesterContext::may_be_eager
  RequestOrigin origin;
  bool blocks_own_multicast = false;  // IBV_QP_CREATE_BLOCK_SELF_MCAST_LB
  uint32_t strays = 0;                // of its datagrams; stray.h
  DatagramTargets targets;
  std::vector<Destination*> events_due;  // destinations whose completion event is still to be raised
};

enum class Delivery : uint8_t {
  kTaken,
  kDropped,    // counted by the queue pair
  kNoReceive,  // nothing has happened: there is no receive WQE, and the message may wait for one
};

// Delivers `message` to `to`, which is_ready(). The caller holds a hazard guard on its adapter.
// raise_events() raises the event of the completion later (Destination::event_due).
Delivery deliver(const DatagramSender& from, Destination& to, const DatagramMessage& message);

// Raises the events of the completions that deliver() has appended. The caller holds no hazard guard.
void raise_events(DatagramSender& from);

}  // namespace verbena
