// SPDX-License-Identifier: BSD-2-Clause
//
// Positions: InfiniBand Architecture Specification, volume 1, tables of chapter 12.6; Linux: cm_msgs.h, and
// include/rdma/ibta_vol1_c12.h for the vendor ID (ECE).
#include "cm/message_fields.h"

namespace verbena::cm {
namespace {

constexpr uint64_t ones(unsigned width) { return width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1; }

// `byte` counts from the end of the MAD's head, as in the tables of the specification.
constexpr FieldPlace at(Field field, unsigned byte, unsigned bit, unsigned width) {
  return {field,
          static_cast<uint16_t>(kMadHead + byte),
          static_cast<uint8_t>(bit),
          static_cast<uint8_t>(width),
          0,
          ones(width)};
}
constexpr FieldPlace at(Field field, unsigned byte, unsigned bit, unsigned width, uint64_t min,
                        uint64_t max) {
  FieldPlace place = at(field, byte, bit, width);
  place.min = min;
  place.max = max;
  return place;
}
constexpr BytesPlace bytes_at(uint8_t* (*bytes)(Message&), unsigned byte, size_t size) {
  return {bytes, static_cast<uint16_t>(kMadHead + byte), static_cast<uint16_t>(size)};
}

uint8_t* private_data(Message& m) { return m.private_data.data(); }
uint8_t* info(Message& m) { return m.info.data(); }
uint8_t* primary_local(Message& m) { return m.primary_local.data(); }
uint8_t* primary_remote(Message& m) { return m.primary_remote.data(); }
uint8_t* alternate_local(Message& m) { return m.alternate_local.data(); }
uint8_t* alternate_remote(Message& m) { return m.alternate_remote.data(); }

using enum Field;

// In every message: in the MAD's own head.
#define VERBENA_CM_COMMON \
  FieldPlace{kTransaction, 8, 0, 64, 0, ones(64)}, FieldPlace { kAttributeModifier, 20, 0, 32, 0, ones(32) }

constexpr FieldPlace kReqFields[] = {
    VERBENA_CM_COMMON,
    at(kLocalId, 0, 0, 32),
    at(kVendorId, 5, 0, 24),
    at(kServiceId, 8, 0, 64),
    at(kCaGuid, 16, 0, 64),
    at(kQkey, 28, 0, 32),
    at(kQpn, 32, 0, 24),
    at(kResponderResources, 35, 0, 8),
    at(kEecn, 36, 0, 24),
    at(kInitiatorDepth, 39, 0, 8),
    at(kRemoteResponseTimeout, 43, 0, 5),
    at(kTransportType, 43, 5, 2),
    at(kFlowControl, 43, 7, 1),
    at(kPsn, 44, 0, 24),
    at(kLocalResponseTimeout, 47, 0, 5),
    at(kRetryCount, 47, 5, 3),
    at(kPkey, 48, 0, 16),
    at(kMtu, 50, 0, 4, 1, 5),
    at(kRnrRetryCount, 50, 5, 3),
    at(kMaxCmRetries, 51, 0, 4),
    at(kSrq, 51, 4, 1),
    at(kExtendedTransportType, 51, 5, 3, 0, 1),
    at(kPrimaryLocalLid, 52, 0, 16),
    at(kPrimaryRemoteLid, 54, 0, 16),
    at(kPrimaryFlowLabel, 88, 0, 20),
    at(kPrimaryRate, 91, 2, 6),
    at(kPrimaryTrafficClass, 92, 0, 8),
    at(kPrimaryHopLimit, 93, 0, 8),
    at(kPrimarySl, 94, 0, 4),
    at(kPrimarySubnetLocal, 94, 4, 1),
    at(kPrimaryAckTimeout, 95, 0, 5),
    at(kAlternateLocalLid, 96, 0, 16),
    at(kAlternateRemoteLid, 98, 0, 16),
    at(kAlternateFlowLabel, 132, 0, 20),
    at(kAlternateRate, 135, 2, 6),
    at(kAlternateTrafficClass, 136, 0, 8),
    at(kAlternateHopLimit, 137, 0, 8),
    at(kAlternateSl, 138, 0, 4),
    at(kAlternateSubnetLocal, 138, 4, 1),
    at(kAlternateAckTimeout, 139, 0, 5),
};
constexpr BytesPlace kReqBytes[] = {
    bytes_at(primary_local, 56, 16),
    bytes_at(primary_remote, 72, 16),
    bytes_at(alternate_local, 100, 16),
    bytes_at(alternate_remote, 116, 16),
    bytes_at(private_data, 140, kReqPrivateData),
};

constexpr FieldPlace kMraFields[] = {
    VERBENA_CM_COMMON,
    at(kLocalId, 0, 0, 32),
    at(kRemoteId, 4, 0, 32),
    at(kWhichMessage, 8, 0, 2, 0, 2),
    at(kServiceTimeout, 9, 0, 5),
};
constexpr BytesPlace kMraBytes[] = {bytes_at(private_data, 10, 222)};

constexpr FieldPlace kRejFields[] = {
    VERBENA_CM_COMMON,
    at(kLocalId, 0, 0, 32),
    at(kRemoteId, 4, 0, 32),
    at(kWhichMessage, 8, 0, 2, 0, 2),
    at(kInfoLength, 9, 0, 7, 0, kInfoSize),
    at(kReason, 10, 0, 16, 1, 35),
};
constexpr BytesPlace kRejBytes[] = {bytes_at(info, 12, kInfoSize),
                                    bytes_at(private_data, 84, kRejPrivateData)};

constexpr FieldPlace kRepFields[] = {
    VERBENA_CM_COMMON,
    at(kLocalId, 0, 0, 32),
    at(kRemoteId, 4, 0, 32),
    at(kQkey, 8, 0, 32),
    at(kQpn, 12, 0, 24),
    at(kVendorId, 15, 0, 8),
    at(kEecn, 16, 0, 24),
    at(kVendorMiddle, 19, 0, 8),
    at(kPsn, 20, 0, 24),
    at(kVendorLow, 23, 0, 8),
    at(kResponderResources, 24, 0, 8),
    at(kInitiatorDepth, 25, 0, 8),
    at(kTargetAckDelay, 26, 0, 5),
    at(kFailover, 26, 5, 2, 0, 2),
    at(kFlowControl, 26, 7, 1),
    at(kRnrRetryCount, 27, 0, 3),
    at(kSrq, 27, 3, 1),
    at(kCaGuid, 28, 0, 64),
};
constexpr BytesPlace kRepBytes[] = {bytes_at(private_data, 36, kRepPrivateData)};

constexpr FieldPlace kRtuFields[] = {VERBENA_CM_COMMON, at(kLocalId, 0, 0, 32), at(kRemoteId, 4, 0, 32)};
constexpr BytesPlace kRtuBytes[] = {bytes_at(private_data, 8, 224)};

constexpr FieldPlace kDreqFields[] = {VERBENA_CM_COMMON, at(kLocalId, 0, 0, 32), at(kRemoteId, 4, 0, 32),
                                      at(kRemoteQpn, 8, 0, 24)};
constexpr BytesPlace kDreqBytes[] = {bytes_at(private_data, 12, 220)};

constexpr FieldPlace kSidrReqFields[] = {VERBENA_CM_COMMON, at(kLocalId, 0, 0, 32), at(kPkey, 4, 0, 16),
                                         at(kServiceId, 8, 0, 64)};
constexpr BytesPlace kSidrReqBytes[] = {bytes_at(private_data, 16, kSidrReqPrivateData)};

constexpr FieldPlace kSidrRepFields[] = {
    VERBENA_CM_COMMON,          at(kLocalId, 0, 0, 32),
    at(kStatus, 4, 0, 8, 0, 5), at(kInfoLength, 5, 0, 8, 0, kInfoSize),
    at(kQpn, 8, 0, 24),         at(kServiceId, 12, 0, 64),
    at(kQkey, 20, 0, 32),
};
constexpr BytesPlace kSidrRepBytes[] = {bytes_at(info, 24, kInfoSize),
                                        bytes_at(private_data, 96, kSidrRepPrivateData)};

constexpr MessageLayout kLayouts[] = {
    {MessageKind::kReq, kReqFields, kReqBytes, kReqPrivateData},
    {MessageKind::kMra, kMraFields, kMraBytes, 222},
    {MessageKind::kRej, kRejFields, kRejBytes, kRejPrivateData},
    {MessageKind::kRep, kRepFields, kRepBytes, kRepPrivateData},
    {MessageKind::kRtu, kRtuFields, kRtuBytes, 224},
    {MessageKind::kDreq, kDreqFields, kDreqBytes, 220},
    {MessageKind::kDrep, kRtuFields, kRtuBytes, 224},
    {MessageKind::kSidrReq, kSidrReqFields, kSidrReqBytes, kSidrReqPrivateData},
    {MessageKind::kSidrRep, kSidrRepFields, kSidrRepBytes, kSidrRepPrivateData},
};

}  // namespace

const MessageLayout* layout_of(MessageKind kind) {
  for (const MessageLayout& layout : kLayouts)
    if (layout.kind == kind) return &layout;
  return nullptr;
}

}  // namespace verbena::cm
