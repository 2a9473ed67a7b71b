// SPDX-License-Identifier: BSD-2-Clause
//
// The messages of the InfiniBand communication manager, and their frames.
//
// A frame is 296 bytes: a head of 40 (magic and version, zero, the port GIDs that a GRH would carry) and a
// MAD of 256 as in InfiniBand (InfiniBand Architecture Specification, volume 1, chapter 12.6; Linux:
// cm_msgs.h). All numbers are in network byte order. message_fields.cc has the positions of the fields in a
// table.
//
// decode() accepts well-formed messages: every field is within its range, and every bit that belongs to no
// field is zero. connection.h and listen.cc check what the fields mean together.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "cm/addresses.h"

namespace verbena::cm {

inline constexpr size_t kFrameHead = 40;
inline constexpr size_t kMadHead = 24;
inline constexpr size_t kMadSize = 256;
inline constexpr size_t kFrameSize = kFrameHead + kMadSize;

using Frame = std::array<uint8_t, kFrameSize>;

// The MAD's attribute ID.
enum class MessageKind : uint16_t {
  kReq = 0x10,
  kMra = 0x11,
  kRej = 0x12,
  kRep = 0x13,
  kRtu = 0x14,
  kDreq = 0x15,
  kDrep = 0x16,
  kSidrReq = 0x17,
  kSidrRep = 0x18,
};

// The numbers in messages. message_fields.cc lists those of each message.
enum class Field : uint8_t {
  kTransaction,        // 64 bits; a reply repeats the request's
  kAttributeModifier,  // ECE's attr_mod
  kLocalId,            // sender's communication ID; of a SIDR message the request ID
  kRemoteId,           // receiver's
  kVendorId,           // ECE; a REP has it in three pieces: high, middle, low byte
  kVendorMiddle,
  kVendorLow,
  kServiceId,
  kCaGuid,
  kQkey,
  kQpn,
  kEecn,
  kRemoteQpn,
  kResponderResources,
  kInitiatorDepth,
  kRemoteResponseTimeout,  // 4.096 us * 2^n, as all timeouts
  kLocalResponseTimeout,
  kTransportType,  // 0 RC, 1 UC, 3 see kExtendedTransportType
  kExtendedTransportType,
  kFlowControl,
  kPsn,
  kRetryCount,
  kRnrRetryCount,
  kMaxCmRetries,
  kSrq,
  kPkey,
  kMtu,
  kPrimaryLocalLid,
  kPrimaryRemoteLid,
  kPrimaryFlowLabel,
  kPrimaryRate,
  kPrimaryTrafficClass,
  kPrimaryHopLimit,
  kPrimarySl,
  kPrimarySubnetLocal,
  kPrimaryAckTimeout,
  kAlternateLocalLid,
  kAlternateRemoteLid,
  kAlternateFlowLabel,
  kAlternateRate,
  kAlternateTrafficClass,
  kAlternateHopLimit,
  kAlternateSl,
  kAlternateSubnetLocal,
  kAlternateAckTimeout,
  kWhichMessage,    // MRA and REJ: enum MessageAnswered
  kServiceTimeout,  // MRA
  kInfoLength,      // of `info`
  kReason,          // REJ
  kTargetAckDelay,
  kFailover,
  kStatus,  // SIDR_REP
  kCount,
};

// The message that an MRA or REJ replies to (cm_msgs.h).
enum MessageAnswered : uint8_t { kAnsweredReq = 0, kAnsweredRep = 1, kAnsweredOther = 2 };

// enum ib_cm_rej_reason (include/rdma/ib_cm.h), those that this connection manager sends.
enum RejectReason : uint16_t {
  kRejectTimeout = 4,
  kRejectInvalidServiceId = 8,
  kRejectStaleConnection = 10,
  kRejectInvalidGid = 12,
  kRejectConsumer = 28,
};

// enum ib_cm_sidr_status.
enum SidrStatus : uint8_t { kSidrSuccess = 0, kSidrUnsupported = 1, kSidrReject = 2, kSidrNoQp = 3 };

// enum ib_cm_data_size.
inline constexpr size_t kReqPrivateData = 92;
inline constexpr size_t kRejPrivateData = 148;
inline constexpr size_t kRepPrivateData = 196;
inline constexpr size_t kSidrReqPrivateData = 216;
inline constexpr size_t kSidrRepPrivateData = 136;
inline constexpr size_t kLargestPrivateData = 224;
inline constexpr size_t kInfoSize = 72;

struct Message {
  MessageKind kind{};
  Gid source{};       // of the port that the message leaves
  Gid destination{};  // of the port that it is for
  std::array<uint64_t, static_cast<size_t>(Field::kCount)> fields{};
  Gid primary_local{}, primary_remote{}, alternate_local{}, alternate_remote{};  // REQ; local: the sender's
  std::array<uint8_t, kInfoSize> info{};                                         // REJ, SIDR_REP
  std::array<uint8_t, kLargestPrivateData> private_data{};  // zero beyond what the kind has

  uint64_t& operator[](Field field) { return fields[static_cast<size_t>(field)]; }
  uint64_t operator[](Field field) const { return fields[static_cast<size_t>(field)]; }
};

// The bytes of private data in a message of this kind.
size_t private_data_size(MessageKind kind);

// Numbers too large for their field lose their upper bits.
void encode(const Message& message, Frame& out);

// False: not a well-formed frame of this version; `out` is then undefined. A pure function of the bytes.
bool decode(std::span<const uint8_t> bytes, Message* out);

// The same for a MAD of another implementation, whose bits in no field are not looked at.
bool decode_mad(std::span<const uint8_t, kMadSize> mad, const Gid& source, const Gid& destination,
                Message* out);

}  // namespace verbena::cm
