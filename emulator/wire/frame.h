// SPDX-License-Identifier: BSD-2-Clause
//
// The frames that two adapters exchange once they are connected. A frame is a head of fixed size and, for
// some kinds, bytes after it. Fields are little-endian. A head contains everything that is needed to carry
// out the frame: apart from the order of the numbers, no frame depends on an earlier one.
//
// decode() is pure and trusts nothing. A frame that it accepts has a known kind, a complete head, and bytes
// that lie within their message. The engine checks numbers, keys and addresses.
#pragma once

#include <cstddef>
#include <cstdint>

namespace verbena::wire {

enum class FrameKind : uint8_t {
  kRequest = 1,       // a request, or one chunk of its bytes
  kAck = 2,           // every request before `number` is done
  kNak = 3,           // `number` is refused; those before it are done
  kRnr = 4,           // `number` found no receive request and must be sent again, later
  kNotReady = 5,      // no queue pair takes `number` now
  kReadData = 6,      // bytes of the response to READ `number`
  kAtomicAnswer = 7,  // what was there before atomic `number`
  kDatagram = 8,
  kQuery = 9,         // asks which process of this node has a queue pair number
  kWhereabouts = 10,  // that one
  kReady = 11,        // there are receive requests again: `number` need not wait for its timer
};

inline constexpr uint32_t kChunkBytes = 256 * 1024;  // at most so many bytes of a message in one frame
inline constexpr uint32_t kMaxMessage = 1u << 31;
inline constexpr uint32_t kMaxDatagram = 40 + 4096;  // the room for the GRH, and an MTU

struct FrameStart {
  uint32_t length;  // of the frame, head and bytes
  FrameKind kind;
  uint8_t detail[3];  // by kind
};

struct RequestHead {
  uint32_t length;
  FrameKind kind;
  uint8_t opcode;      // enum ibv_wr_opcode
  uint8_t flags;       // kSolicited
  uint8_t connection;  // enum ibv_qp_type in the low half, enum ibv_mtu in the high one
  uint32_t target_qpn;
  uint32_t source_qpn;
  uint64_t path_generation;    // of the requester; incremented each time it is connected
  uint64_t number;  // running number within the path generation
  // All requests below this number are finished. Those that the responder has not seen were carried out
  // without it.
  uint64_t finished_below;
  uint32_t psn;
  uint32_t size;       // of the message
  uint32_t offset;     // of these bytes in it
  uint32_t immediate;  // or the rkey to invalidate
  uint64_t remote_address;
  uint32_t rkey;
  uint32_t srqn;  // XRC
  uint64_t compare_add;
  uint64_t swap;

  static constexpr uint8_t kSolicited = 1;
};
static_assert(sizeof(RequestHead) == 88);

// kAck to kAtomicAnswer. `value`, by kind: none; a VendorError; none; a VendorError; offset | size of the
// whole response << 32; the previous value.
struct AnswerHead {
  uint32_t length;
  FrameKind kind;
  uint8_t rnr_timer;  // kRnr: as ibv_qp_attr::min_rnr_timer
  uint8_t reserved[2];
  uint32_t target_qpn;  // the requester's
  uint32_t source_qpn;  // the responder's
  uint64_t path_generation;        // of the request
  uint64_t number;
  uint64_t value;

  uint32_t offset() const { return static_cast<uint32_t>(value); }
  uint32_t size() const { return static_cast<uint32_t>(value >> 32); }
};
static_assert(sizeof(AnswerHead) == 40);

// The bytes are the message: 40 for the GRH, then the program's payload.
struct DatagramHead {
  uint32_t length;
  FrameKind kind;
  uint8_t flags;  // CqeFlags that the sender may set
  uint8_t sl;
  uint8_t path_bits;  // and DatagramSource::kWithGrh
  uint32_t target_qpn;
  uint32_t source_qpn;
  uint32_t qkey;
  uint32_t immediate;
  uint8_t destination[16];  // GID
};
static_assert(sizeof(DatagramHead) == 40);

struct QueryHead {
  uint32_t length;
  FrameKind kind;
  uint8_t reserved[3];
  uint32_t qpn;
  uint32_t reserved_too;
};
static_assert(sizeof(QueryHead) == 16);

struct WhereaboutsHead {
  uint32_t length;
  FrameKind kind;
  uint8_t reserved[3];
  uint32_t qpn;
  uint32_t generation;  // 0: no process has it
  uint64_t node;
  uint32_t slot;
  uint32_t reserved_too;
};
static_assert(sizeof(WhereaboutsHead) == 32);

union FrameHead {
  FrameStart start;
  RequestHead request;
  AnswerHead answer;
  DatagramHead datagram;
  QueryHead query;
  WhereaboutsHead whereabouts;
};

enum class Decoded : uint8_t { kFrame, kIncomplete, kMalformed };

struct Frame {
  FrameHead head;
  uint32_t head_size;
  uint32_t payload;  // bytes after it, of which some may not have come yet
};

// The frame at the beginning of `bytes`. kIncomplete: its head is not complete yet.
Decoded decode(const std::byte* bytes, size_t available, Frame* out) noexcept;

}  // namespace verbena::wire
