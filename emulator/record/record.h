// SPDX-License-Identifier: BSD-2-Clause
//
// What a process writes down of its adapter's work for instruments outside (`verbena capture`): one record
// for each thing that happened. The records of a process are in its ring (record_ring.h).
//
// Numbers are in host byte order unless a comment says otherwise. A reader does not trust them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "observe/observer.h"

namespace verbena::record {

enum class Kind : uint16_t {
  kMessage = 1,   // MessageRecord, then payload
  kPacket = 2,    // PacketRecord, then the beginning of the packet
  kTimeline = 3,  // TimelineRecord
  kFrame = 4,     // FrameRecord, then the beginning of the frame
};

struct Head {
  uint32_t size;  // bytes of the whole record, a multiple of kAlignment
  Kind kind;
  uint16_t reserved;
  uint64_t number;  // of the record in its ring, from 0 on; a gap: records were overwritten
  int64_t time;     // ns, CLOCK_MONOTONIC; never less than that of the record before
};
inline constexpr size_t kAlignment = 8;
static_assert(sizeof(Head) == 24);

// A request that a responder has decided about, or a part of it: a ResponseEvent. `kept` bytes of payload
// follow: what for_each_kept() names of the bytes [offset, end) of the message.
struct MessageRecord {
  static constexpr Kind kKind = Kind::kMessage;

  Head head{};
  PacketRoute route{};
  uint64_t remote_address = 0, compare_add = 0, swap = 0;
  uint32_t source_qpn = 0, target_qpn = 0;
  uint32_t psn = 0;     // of the first packet of the message
  uint32_t length = 0;  // bytes of the message
  uint32_t offset = 0, end = 0;
  uint32_t immediate = 0;  // network byte order; or the rkey of SEND_WITH_INV
  uint32_t rkey = 0;       // of UD the Q_Key
  uint32_t srqn = 0;       // XRC
  uint32_t msn = 0;
  uint32_t mtu = 0;   // bytes
  uint32_t snap = 0;  // most bytes of payload that are kept of a packet
  uint32_t kept = 0;
  uint16_t pkey = 0;
  uint8_t transport = 0;  // enum ibv_qp_type of the requester
  uint8_t opcode = 0;     // enum ibv_wr_opcode
  Reply reply{};
  uint8_t rnr_timer = 0;
  uint8_t vendor_err = 0;
  uint8_t solicited = 0;
};
static_assert(sizeof(MessageRecord) % kAlignment == 0);

// A packet of RoCE v2 to or from another node: a PacketEvent.
struct PacketRecord {
  static constexpr Kind kKind = Kind::kPacket;

  Head head{};
  PacketRoute route{};
  uint32_t length = 0;  // bytes from the BTH to the padding
  uint32_t kept = 0;
  uint16_t port = 0;
  uint8_t reserved[6] = {};
};
static_assert(sizeof(PacketRecord) % kAlignment == 0);

// An Ethernet frame of a raw packet queue pair: a FrameEvent.
struct FrameRecord {
  static constexpr Kind kKind = Kind::kFrame;

  Head head{};
  uint32_t source_qpn = 0;
  uint32_t length = 0;  // bytes of the frame, without FCS
  uint32_t kept = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(FrameRecord) % kAlignment == 0);

// What has happened; of which queue pair, `qpn`, and with what in the other fields.
enum class Step : uint8_t {
  kPostSend = 1,  // opcode: enum ibv_wr_opcode
  kPostReceive,   // qpn: of an SRQ its number
  kRequestEnd,    // opcode: enum ibv_wr_opcode; more: vendor_err
  kResponse,      // qpn: of the responder; opcode: enum ibv_wr_opcode; status: Reply; more: vendor_err
  kPollSend,      // opcode: enum ibv_wc_opcode; status: enum ibv_wc_status
  kPollReceive,   // status: enum ibv_wc_status
  kState,         // status: enum ibv_qp_state; more: the one before
  kEvent,         // qpn: 0 if it is not that of a queue pair; status: enum ibv_event_type
  kSmallRequest,  // posted, carried out and ended at once; qpn: of the requester; opcode: enum ibv_wr_opcode
  kManagement,    // a message of the connection manager; opcode: the low byte of its attribute ID;
                  // wr_id: its transaction ID
  kRetry,         // a request is to be sent again; opcode: enum ibv_wr_opcode; more: vendor_err
};

struct TimelineRecord {
  static constexpr Kind kKind = Kind::kTimeline;

  Head head{};
  uint64_t wr_id = 0;
  uint32_t thread = 0;  // gettid(2)
  uint32_t qpn = 0;
  uint32_t peer_qpn = 0;
  uint32_t psn = 0;
  uint32_t length = 0;  // bytes
  Step step{};
  uint8_t opcode = 0;
  uint8_t status = 0;
  uint8_t more = 0;
};
static_assert(sizeof(TimelineRecord) == 56);

// Of each packet of `mtu` bytes the first `snap` bytes of payload are kept. Calls keep(position, size) for
// each piece of [offset, end) that is, in order. Returns their sum.
template <typename Keep>
uint32_t for_each_kept(uint32_t offset, uint32_t end, uint32_t mtu, uint32_t snap, Keep keep) {
  if (mtu == 0 || offset >= end) return 0;
  if (snap >= mtu) {
    keep(offset, end - offset);
    return end - offset;
  }
  uint32_t sum = 0;
  for (uint64_t packet = offset / mtu * uint64_t{mtu}; packet < end; packet += mtu) {
    const uint64_t from = packet < offset ? offset : packet;
    const uint64_t to = packet + snap < end ? packet + snap : end;
    if (from >= to) continue;
    keep(static_cast<uint32_t>(from), static_cast<uint32_t>(to - from));
    sum += static_cast<uint32_t>(to - from);
  }
  return sum;
}

}  // namespace verbena::record
