// SPDX-License-Identifier: BSD-2-Clause
//
// The messages of the connection manager that connect, refuse and disconnect. After the header of a MAD each
// has 232 bytes, to the end of its private data. GIDs and private data are bytes, all else numbers.
//
// Names are those of the InfiniBand specification; the numbers of its tables, and of its fields, stand at
// each. Sources: InfiniBand Architecture Specification vol. 1, 12.6 and 12.11; the kernel's
// include/rdma/ibta_vol1_c12.h.
#pragma once

#include "roce/mad.h"

namespace verbena::roce {

inline constexpr size_t kCmMessageSize = kMadSize - 24;
inline constexpr uint8_t kCmClass = 0x07;
inline constexpr uint8_t kCmClassVersion = 2;
inline constexpr uint8_t kCmMethod = 0x03;  // Send()

// CmReq::transport_type
enum class CmTransport : uint8_t { kRc = 0, kUc = 1, kRd = 2, kExtended = 3 };
inline constexpr uint8_t kCmExtendedXrc = 1;  // CmReq::extended_transport_type

// CmMra::message and CmRej::message: which message is meant.
enum class CmAnswered : uint8_t { kReq = 0, kRep = 1, kOther = 2 };

// REQ: connect (table 106).
struct CmReq {
  static constexpr uint16_t kAttribute = 0x10;
  uint32_t local_comm_id = 0;
  uint64_t service_id = 0;
  uint64_t local_ca_guid = 0;
  uint32_t local_qkey = 0;
  uint32_t local_qpn = 0;
  uint8_t responder_resources = 0;
  uint32_t local_eecn = 0;
  uint8_t initiator_depth = 0;
  uint32_t remote_eecn = 0;
  uint8_t remote_response_timeout = 0;
  uint8_t transport_type = 0;
  bool flow_control = false;
  uint32_t starting_psn = 0;
  uint8_t local_response_timeout = 0;
  uint8_t retry_count = 0;
  uint16_t pkey = 0;
  uint8_t path_mtu = 0;
  bool rdc_exists = false;
  uint8_t rnr_retry_count = 0;
  uint8_t max_cm_retries = 0;
  bool srq = false;
  uint8_t extended_transport_type = 0;
  uint16_t primary_local_lid = 0;
  uint16_t primary_remote_lid = 0;
  std::array<uint8_t, 16> primary_local_gid{};
  std::array<uint8_t, 16> primary_remote_gid{};
  uint32_t primary_flow_label = 0;
  uint8_t primary_packet_rate = 0;
  uint8_t primary_traffic_class = 0;
  uint8_t primary_hop_limit = 0;
  uint8_t primary_sl = 0;
  bool primary_subnet_local = false;
  uint8_t primary_ack_timeout = 0;
  uint16_t alternate_local_lid = 0;
  uint16_t alternate_remote_lid = 0;
  std::array<uint8_t, 16> alternate_local_gid{};
  std::array<uint8_t, 16> alternate_remote_gid{};
  uint32_t alternate_flow_label = 0;
  uint8_t alternate_packet_rate = 0;
  uint8_t alternate_traffic_class = 0;
  uint8_t alternate_hop_limit = 0;
  uint8_t alternate_sl = 0;
  bool alternate_subnet_local = false;
  uint8_t alternate_ack_timeout = 0;
  bool sap_supported = false;
  std::array<uint8_t, 92> private_data{};

  bool operator==(const CmReq&) const = default;
};
template <>
struct Layout<CmReq> {
  static constexpr size_t kSize = kCmMessageSize;
  static constexpr auto kFields = std::tuple{Field<&CmReq::local_comm_id>{0 * 8, 32},
                                             Field<&CmReq::service_id>{8 * 8, 64},
                                             Field<&CmReq::local_ca_guid>{16 * 8, 64},
                                             Field<&CmReq::local_qkey>{28 * 8, 32},
                                             Field<&CmReq::local_qpn>{32 * 8, 24},
                                             Field<&CmReq::responder_resources>{35 * 8, 8},
                                             Field<&CmReq::local_eecn>{36 * 8, 24},
                                             Field<&CmReq::initiator_depth>{39 * 8, 8},
                                             Field<&CmReq::remote_eecn>{40 * 8, 24},
                                             Field<&CmReq::remote_response_timeout>{43 * 8, 5},
                                             Field<&CmReq::transport_type>{43 * 8 + 5, 2},
                                             Field<&CmReq::flow_control>{43 * 8 + 7, 1},
                                             Field<&CmReq::starting_psn>{44 * 8, 24},
                                             Field<&CmReq::local_response_timeout>{47 * 8, 5},
                                             Field<&CmReq::retry_count>{47 * 8 + 5, 3},
                                             Field<&CmReq::pkey>{48 * 8, 16},
                                             Field<&CmReq::path_mtu>{50 * 8, 4},
                                             Field<&CmReq::rdc_exists>{50 * 8 + 4, 1},
                                             Field<&CmReq::rnr_retry_count>{50 * 8 + 5, 3},
                                             Field<&CmReq::max_cm_retries>{51 * 8, 4},
                                             Field<&CmReq::srq>{51 * 8 + 4, 1},
                                             Field<&CmReq::extended_transport_type>{51 * 8 + 5, 3},
                                             Field<&CmReq::primary_local_lid>{52 * 8, 16},
                                             Field<&CmReq::primary_remote_lid>{54 * 8, 16},
                                             Field<&CmReq::primary_local_gid>{56 * 8, 128},
                                             Field<&CmReq::primary_remote_gid>{72 * 8, 128},
                                             Field<&CmReq::primary_flow_label>{88 * 8, 20},
                                             Field<&CmReq::primary_packet_rate>{91 * 8 + 2, 6},
                                             Field<&CmReq::primary_traffic_class>{92 * 8, 8},
                                             Field<&CmReq::primary_hop_limit>{93 * 8, 8},
                                             Field<&CmReq::primary_sl>{94 * 8, 4},
                                             Field<&CmReq::primary_subnet_local>{94 * 8 + 4, 1},
                                             Field<&CmReq::primary_ack_timeout>{95 * 8, 5},
                                             Field<&CmReq::alternate_local_lid>{96 * 8, 16},
                                             Field<&CmReq::alternate_remote_lid>{98 * 8, 16},
                                             Field<&CmReq::alternate_local_gid>{100 * 8, 128},
                                             Field<&CmReq::alternate_remote_gid>{116 * 8, 128},
                                             Field<&CmReq::alternate_flow_label>{132 * 8, 20},
                                             Field<&CmReq::alternate_packet_rate>{135 * 8 + 2, 6},
                                             Field<&CmReq::alternate_traffic_class>{136 * 8, 8},
                                             Field<&CmReq::alternate_hop_limit>{137 * 8, 8},
                                             Field<&CmReq::alternate_sl>{138 * 8, 4},
                                             Field<&CmReq::alternate_subnet_local>{138 * 8 + 4, 1},
                                             Field<&CmReq::alternate_ack_timeout>{139 * 8, 5},
                                             Field<&CmReq::sap_supported>{139 * 8 + 5, 1},
                                             Field<&CmReq::private_data>{140 * 8, 736}};
};
static_assert(is_sound_layout<CmReq>());

// MRA: received, the reply takes longer (table 107).
struct CmMra {
  static constexpr uint16_t kAttribute = 0x11;
  uint32_t local_comm_id = 0;
  uint32_t remote_comm_id = 0;
  uint8_t message = 0;
  uint8_t service_timeout = 0;
  std::array<uint8_t, 222> private_data{};

  bool operator==(const CmMra&) const = default;
};
template <>
struct Layout<CmMra> {
  static constexpr size_t kSize = kCmMessageSize;
  static constexpr auto kFields =
      std::tuple{Field<&CmMra::local_comm_id>{0 * 8, 32}, Field<&CmMra::remote_comm_id>{4 * 8, 32},
                 Field<&CmMra::message>{8 * 8, 2}, Field<&CmMra::service_timeout>{9 * 8, 5},
                 Field<&CmMra::private_data>{10 * 8, 1776}};
};
static_assert(is_sound_layout<CmMra>());

// REJ: refused (table 108).
struct CmRej {
  static constexpr uint16_t kAttribute = 0x12;
  uint32_t local_comm_id = 0;
  uint32_t remote_comm_id = 0;
  uint8_t message = 0;
  uint8_t info_length = 0;
  uint16_t reason = 0;
  std::array<uint8_t, 72> info{};
  std::array<uint8_t, 148> private_data{};

  bool operator==(const CmRej&) const = default;
};
template <>
struct Layout<CmRej> {
  static constexpr size_t kSize = kCmMessageSize;
  static constexpr auto kFields =
      std::tuple{Field<&CmRej::local_comm_id>{0 * 8, 32},  Field<&CmRej::remote_comm_id>{4 * 8, 32},
                 Field<&CmRej::message>{8 * 8, 2},         Field<&CmRej::info_length>{9 * 8, 7},
                 Field<&CmRej::reason>{10 * 8, 16},        Field<&CmRej::info>{12 * 8, 576},
                 Field<&CmRej::private_data>{84 * 8, 1184}};
};
static_assert(is_sound_layout<CmRej>());

// REP: accepted (table 110).
struct CmRep {
  static constexpr uint16_t kAttribute = 0x13;
  uint32_t local_comm_id = 0;
  uint32_t remote_comm_id = 0;
  uint32_t local_qkey = 0;
  uint32_t local_qpn = 0;
  uint32_t local_eecn = 0;
  uint32_t starting_psn = 0;
  uint8_t responder_resources = 0;
  uint8_t initiator_depth = 0;
  uint8_t target_ack_delay = 0;
  uint8_t failover_accepted = 0;
  bool flow_control = false;
  uint8_t rnr_retry_count = 0;
  bool srq = false;
  uint64_t local_ca_guid = 0;
  std::array<uint8_t, 196> private_data{};

  bool operator==(const CmRep&) const = default;
};
template <>
struct Layout<CmRep> {
  static constexpr size_t kSize = kCmMessageSize;
  static constexpr auto kFields = std::tuple{Field<&CmRep::local_comm_id>{0 * 8, 32},
                                             Field<&CmRep::remote_comm_id>{4 * 8, 32},
                                             Field<&CmRep::local_qkey>{8 * 8, 32},
                                             Field<&CmRep::local_qpn>{12 * 8, 24},
                                             Field<&CmRep::local_eecn>{16 * 8, 24},
                                             Field<&CmRep::starting_psn>{20 * 8, 24},
                                             Field<&CmRep::responder_resources>{24 * 8, 8},
                                             Field<&CmRep::initiator_depth>{25 * 8, 8},
                                             Field<&CmRep::target_ack_delay>{26 * 8, 5},
                                             Field<&CmRep::failover_accepted>{26 * 8 + 5, 2},
                                             Field<&CmRep::flow_control>{26 * 8 + 7, 1},
                                             Field<&CmRep::rnr_retry_count>{27 * 8, 3},
                                             Field<&CmRep::srq>{27 * 8 + 3, 1},
                                             Field<&CmRep::local_ca_guid>{28 * 8, 64},
                                             Field<&CmRep::private_data>{36 * 8, 1568}};
};
static_assert(is_sound_layout<CmRep>());

// RTU: ready to use (table 111).
struct CmRtu {
  static constexpr uint16_t kAttribute = 0x14;
  uint32_t local_comm_id = 0;
  uint32_t remote_comm_id = 0;
  std::array<uint8_t, 224> private_data{};

  bool operator==(const CmRtu&) const = default;
};
template <>
struct Layout<CmRtu> {
  static constexpr size_t kSize = kCmMessageSize;
  static constexpr auto kFields =
      std::tuple{Field<&CmRtu::local_comm_id>{0 * 8, 32}, Field<&CmRtu::remote_comm_id>{4 * 8, 32},
                 Field<&CmRtu::private_data>{8 * 8, 1792}};
};
static_assert(is_sound_layout<CmRtu>());

// DREQ: disconnect (table 112).
struct CmDreq {
  static constexpr uint16_t kAttribute = 0x15;
  uint32_t local_comm_id = 0;
  uint32_t remote_comm_id = 0;
  uint32_t remote_qpn = 0;
  std::array<uint8_t, 220> private_data{};

  bool operator==(const CmDreq&) const = default;
};
template <>
struct Layout<CmDreq> {
  static constexpr size_t kSize = kCmMessageSize;
  static constexpr auto kFields =
      std::tuple{Field<&CmDreq::local_comm_id>{0 * 8, 32}, Field<&CmDreq::remote_comm_id>{4 * 8, 32},
                 Field<&CmDreq::remote_qpn>{8 * 8, 24}, Field<&CmDreq::private_data>{12 * 8, 1760}};
};
static_assert(is_sound_layout<CmDreq>());

// DREP: disconnected (table 113).
struct CmDrep {
  static constexpr uint16_t kAttribute = 0x16;
  uint32_t local_comm_id = 0;
  uint32_t remote_comm_id = 0;
  std::array<uint8_t, 224> private_data{};

  bool operator==(const CmDrep&) const = default;
};
template <>
struct Layout<CmDrep> {
  static constexpr size_t kSize = kCmMessageSize;
  static constexpr auto kFields =
      std::tuple{Field<&CmDrep::local_comm_id>{0 * 8, 32}, Field<&CmDrep::remote_comm_id>{4 * 8, 32},
                 Field<&CmDrep::private_data>{8 * 8, 1792}};
};
static_assert(is_sound_layout<CmDrep>());

}  // namespace verbena::roce
