// SPDX-License-Identifier: BSD-2-Clause
//
// The messages of the connection manager for datagrams (SIDR) and alternate paths.
//
// Names are those of the InfiniBand specification; the numbers of its tables, and of its fields, stand at
// each. Sources: InfiniBand Architecture Specification vol. 1, 12.6 and 12.11; the kernel's
// include/rdma/ibta_vol1_c12.h.
#pragma once

#include "roce/cm_messages.h"

namespace verbena::roce {

// SIDR_REQ: asks for the QP of a UD service (table 119).
struct CmSidrReq {
  static constexpr uint16_t kAttribute = 0x17;
  uint32_t request_id = 0;
  uint16_t pkey = 0;
  uint64_t service_id = 0;
  std::array<uint8_t, 216> private_data{};

  bool operator==(const CmSidrReq&) const = default;
};
template <>
struct Layout<CmSidrReq> {
  static constexpr size_t kSize = kCmMessageSize;
  static constexpr auto kFields =
      std::tuple{Field<&CmSidrReq::request_id>{0 * 8, 32}, Field<&CmSidrReq::pkey>{4 * 8, 16},
                 Field<&CmSidrReq::service_id>{8 * 8, 64}, Field<&CmSidrReq::private_data>{16 * 8, 1728}};
};
static_assert(is_sound_layout<CmSidrReq>());

// SIDR_REP: that QP (table 120).
struct CmSidrRep {
  static constexpr uint16_t kAttribute = 0x18;
  uint32_t request_id = 0;
  uint8_t status = 0;
  uint8_t info_length = 0;
  uint32_t qpn = 0;
  uint64_t service_id = 0;
  uint32_t qkey = 0;
  std::array<uint8_t, 72> info{};
  std::array<uint8_t, 136> private_data{};

  bool operator==(const CmSidrRep&) const = default;
};
template <>
struct Layout<CmSidrRep> {
  static constexpr size_t kSize = kCmMessageSize;
  static constexpr auto kFields =
      std::tuple{Field<&CmSidrRep::request_id>{0 * 8, 32},  Field<&CmSidrRep::status>{4 * 8, 8},
                 Field<&CmSidrRep::info_length>{5 * 8, 8},  Field<&CmSidrRep::qpn>{8 * 8, 24},
                 Field<&CmSidrRep::service_id>{12 * 8, 64}, Field<&CmSidrRep::qkey>{20 * 8, 32},
                 Field<&CmSidrRep::info>{24 * 8, 576},      Field<&CmSidrRep::private_data>{96 * 8, 1088}};
};
static_assert(is_sound_layout<CmSidrRep>());

// LAP: load an alternate path (table 115).
struct CmLap {
  static constexpr uint16_t kAttribute = 0x19;
  uint32_t local_comm_id = 0;
  uint32_t remote_comm_id = 0;
  uint32_t remote_qpn = 0;
  uint8_t remote_response_timeout = 0;
  uint16_t alternate_local_lid = 0;
  uint16_t alternate_remote_lid = 0;
  std::array<uint8_t, 16> alternate_local_gid{};
  std::array<uint8_t, 16> alternate_remote_gid{};
  uint32_t alternate_flow_label = 0;
  uint8_t alternate_traffic_class = 0;
  uint8_t alternate_hop_limit = 0;
  uint8_t alternate_packet_rate = 0;
  uint8_t alternate_sl = 0;
  bool alternate_subnet_local = false;
  uint8_t alternate_ack_timeout = 0;
  std::array<uint8_t, 168> private_data{};

  bool operator==(const CmLap&) const = default;
};
template <>
struct Layout<CmLap> {
  static constexpr size_t kSize = kCmMessageSize;
  static constexpr auto kFields = std::tuple{
      Field<&CmLap::local_comm_id>{0 * 8, 32},         Field<&CmLap::remote_comm_id>{4 * 8, 32},
      Field<&CmLap::remote_qpn>{12 * 8, 24},           Field<&CmLap::remote_response_timeout>{15 * 8, 5},
      Field<&CmLap::alternate_local_lid>{20 * 8, 16},  Field<&CmLap::alternate_remote_lid>{22 * 8, 16},
      Field<&CmLap::alternate_local_gid>{24 * 8, 128}, Field<&CmLap::alternate_remote_gid>{40 * 8, 128},
      Field<&CmLap::alternate_flow_label>{56 * 8, 20}, Field<&CmLap::alternate_traffic_class>{59 * 8, 8},
      Field<&CmLap::alternate_hop_limit>{60 * 8, 8},   Field<&CmLap::alternate_packet_rate>{61 * 8 + 2, 6},
      Field<&CmLap::alternate_sl>{62 * 8, 4},          Field<&CmLap::alternate_subnet_local>{62 * 8 + 4, 1},
      Field<&CmLap::alternate_ack_timeout>{63 * 8, 5}, Field<&CmLap::private_data>{64 * 8, 1344}};
};
static_assert(is_sound_layout<CmLap>());

// APR: the alternate path, loaded or not (table 116).
struct CmApr {
  static constexpr uint16_t kAttribute = 0x1a;
  uint32_t local_comm_id = 0;
  uint32_t remote_comm_id = 0;
  uint8_t info_length = 0;
  uint8_t status = 0;
  std::array<uint8_t, 72> info{};
  std::array<uint8_t, 148> private_data{};

  bool operator==(const CmApr&) const = default;
};
template <>
struct Layout<CmApr> {
  static constexpr size_t kSize = kCmMessageSize;
  static constexpr auto kFields =
      std::tuple{Field<&CmApr::local_comm_id>{0 * 8, 32}, Field<&CmApr::remote_comm_id>{4 * 8, 32},
                 Field<&CmApr::info_length>{8 * 8, 8},    Field<&CmApr::status>{9 * 8, 8},
                 Field<&CmApr::info>{12 * 8, 576},        Field<&CmApr::private_data>{84 * 8, 1184}};
};
static_assert(is_sound_layout<CmApr>());

}  // namespace verbena::roce
