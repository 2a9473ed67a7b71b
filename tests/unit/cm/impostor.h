// SPDX-License-Identifier: BSD-2-Clause
//
// Sends to this process's connection manager in the name of another process of the node.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>

#include "cm/message.h"
#include "cm/message_fields.h"
#include "fabric/node.h"
#include "fabric/service_socket.h"
#include "fabric/slot_folder.h"
#include "unit/common/temporary_node.h"

namespace verbena::cm {

struct SlotName {
  uint32_t slot, generation;
};

inline SlotName living_slot(const NodeDirectory& directory, int32_t pid) {
  for (uint32_t i = 0; i < kMaxSlots; ++i) {
    const Slot& slot = directory.slot(i);
    if (slot.state == SlotState::kLive && slot.pid == pid) return {i, slot.generation};
  }
  return {};
}

// Both processes must have a slot.
inline void introduce(MessageSocket& socket, const TemporaryNode& node, int32_t pid) {
  const SlotName victim = living_slot(node.directory(), getpid()), self = living_slot(node.directory(), pid);
  struct {
    uint32_t magic = 0x484d4356, version = 1;
    uint64_t node_id;
    SlotName slot;
  } hello;
  hello.node_id = node.directory().header().node_id;
  hello.slot = self;
  EXPECT_EQ(call_service(slot_folder(node.path(), victim.slot, victim.generation),
                         ServiceNumber::kConnectionManager,
                         {reinterpret_cast<const uint8_t*>(&hello), sizeof hello}, &socket),
            0);
}

// Between 127.0.0.1 and 127.0.0.1, of RDMA_PS_TCP; each field has its smallest value.
inline Message request_to(uint16_t port) {
  Message m;
  m.kind = MessageKind::kReq;
  for (const FieldPlace& place : layout_of(m.kind)->fields) m[place.field] = place.min;
  m[Field::kServiceId] = 0x01060000u + port;
  m[Field::kLocalId] = 1;
  m[Field::kQpn] = 0x31;
  m.source[10] = m.source[11] = m.destination[10] = m.destination[11] = 0xff;
  m.source[12] = m.destination[12] = 127;
  m.source[15] = m.destination[15] = 1;
  m.primary_local = m.source;
  m.primary_remote = m.destination;
  m.private_data[1] = 0x40;  // the CMA header: IPv4
  m.private_data[16] = m.private_data[32] = 127;
  m.private_data[19] = m.private_data[35] = 1;
  return m;
}

// Asks for connections, and sends nothing else.
class SilentPeer {
 public:
  SilentPeer(const TemporaryNode& node, int32_t pid) { introduce(socket_, node, pid); }

  // `timeout`: how long it waits for an answer, in 4.096 us * 2^n; `retries`: how often it asks again.
  void ask(uint16_t port, uint8_t timeout, uint8_t retries) {
    Message m = request_to(port);
    m[Field::kLocalResponseTimeout] = timeout;
    m[Field::kMaxCmRetries] = retries;
    Frame frame;
    encode(m, frame);
    EXPECT_EQ(socket_.send(frame), 0);
  }
  // How many messages of `kind` have come since the last time.
  int heard(MessageKind kind) {
    int count = 0;
    Frame frame;
    Message m;
    while (socket_.receive(frame) == kFrameSize)
      if (decode(frame, &m) && m.kind == kind) ++count;
    return count;
  }

 private:
  MessageSocket socket_;
};

}  // namespace verbena::cm
