// SPDX-License-Identifier: BSD-2-Clause
//
// The transport headers of a RoCE v2 packet, in the order in which they may follow each other. opcode.h says
// which of them a packet has.
//
// Sources: InfiniBand Architecture Specification vol. 1, chapter 9.2 and 9.3, annexes A14 (XRC) and A17
// (RoCE v2); rdma-core, the kernel's drivers/infiniband/sw/rxe/rxe_hdr.h.
#pragma once

#include "roce/field.h"

namespace verbena::roce {

inline constexpr uint16_t kUdpPort = 4791;
inline constexpr uint16_t kDefaultPkey = 0xffff;
inline constexpr size_t kIcrcSize = 4;

// Base transport header.
struct Bth {
  uint8_t opcode = 0;
  bool solicited = false;
  bool migrated = false;  // MigReq. rxe sends 0, other adapters 1.
  uint8_t pad = 0;        // bytes of padding after the payload
  uint8_t version = 0;    // always 0
  uint16_t pkey = kDefaultPkey;
  bool fecn = false;
  bool becn = false;
  uint32_t destination_qpn = 0;
  bool ack_requested = false;
  uint32_t psn = 0;

  bool operator==(const Bth&) const = default;
};
template <>
struct Layout<Bth> {
  static constexpr size_t kSize = 12;
  static constexpr auto kFields = std::tuple{
      Field<&Bth::opcode>{0, 8},         Field<&Bth::solicited>{8, 1}, Field<&Bth::migrated>{9, 1},
      Field<&Bth::pad>{10, 2},           Field<&Bth::version>{12, 4},  Field<&Bth::pkey>{16, 16},
      Field<&Bth::fecn>{32, 1},          Field<&Bth::becn>{33, 1},     Field<&Bth::destination_qpn>{40, 24},
      Field<&Bth::ack_requested>{64, 1}, Field<&Bth::psn>{72, 24}};
};

// Datagram extended transport header: UD.
struct Deth {
  uint32_t qkey = 0;
  uint32_t source_qpn = 0;

  bool operator==(const Deth&) const = default;
};
template <>
struct Layout<Deth> {
  static constexpr size_t kSize = 8;
  static constexpr auto kFields = std::tuple{Field<&Deth::qkey>{0, 32}, Field<&Deth::source_qpn>{40, 24}};
};

// XRC extended transport header: the SRQ that a request is for.
struct Xrceth {
  uint32_t srqn = 0;

  bool operator==(const Xrceth&) const = default;
};
template <>
struct Layout<Xrceth> {
  static constexpr size_t kSize = 4;
  static constexpr auto kFields = std::tuple{Field<&Xrceth::srqn>{8, 24}};
};

// RDMA extended transport header: WRITE and READ.
struct Reth {
  uint64_t address = 0;
  uint32_t rkey = 0;
  uint32_t length = 0;  // of the message, bytes

  bool operator==(const Reth&) const = default;
};
template <>
struct Layout<Reth> {
  static constexpr size_t kSize = 16;
  static constexpr auto kFields =
      std::tuple{Field<&Reth::address>{0, 64}, Field<&Reth::rkey>{64, 32}, Field<&Reth::length>{96, 32}};
};

// Atomic extended transport header.
struct AtomicEth {
  uint64_t address = 0;
  uint32_t rkey = 0;
  uint64_t swap_add = 0;  // CMP_AND_SWP: the new value; FETCH_AND_ADD: the number to add
  uint64_t compare = 0;   // CMP_AND_SWP

  bool operator==(const AtomicEth&) const = default;
};
template <>
struct Layout<AtomicEth> {
  static constexpr size_t kSize = 28;
  static constexpr auto kFields =
      std::tuple{Field<&AtomicEth::address>{0, 64}, Field<&AtomicEth::rkey>{64, 32},
                 Field<&AtomicEth::swap_add>{96, 64}, Field<&AtomicEth::compare>{160, 64}};
};

// ACK extended transport header. syndrome.h has what `syndrome` says.
struct Aeth {
  uint8_t syndrome = 0;
  uint32_t msn = 0;

  bool operator==(const Aeth&) const = default;
};
template <>
struct Layout<Aeth> {
  static constexpr size_t kSize = 4;
  static constexpr auto kFields = std::tuple{Field<&Aeth::syndrome>{0, 8}, Field<&Aeth::msn>{8, 24}};
};

// Atomic ACK extended transport header: what was in memory before.
struct AtomicAckEth {
  uint64_t before = 0;

  bool operator==(const AtomicAckEth&) const = default;
};
template <>
struct Layout<AtomicAckEth> {
  static constexpr size_t kSize = 8;
  static constexpr auto kFields = std::tuple{Field<&AtomicAckEth::before>{0, 64}};
};

// Immediate data. A number in the order of the host: ntohl() of ibv_send_wr::imm_data.
struct ImmDt {
  uint32_t immediate = 0;

  bool operator==(const ImmDt&) const = default;
};
template <>
struct Layout<ImmDt> {
  static constexpr size_t kSize = 4;
  static constexpr auto kFields = std::tuple{Field<&ImmDt::immediate>{0, 32}};
};

// Invalidate extended transport header: the key that SEND_WITH_INV ends.
struct Ieth {
  uint32_t rkey = 0;

  bool operator==(const Ieth&) const = default;
};
template <>
struct Layout<Ieth> {
  static constexpr size_t kSize = 4;
  static constexpr auto kFields = std::tuple{Field<&Ieth::rkey>{0, 32}};
};

static_assert(is_sound_layout<Bth>() && is_sound_layout<Deth>() && is_sound_layout<Xrceth>() &&
              is_sound_layout<Reth>() && is_sound_layout<AtomicEth>() && is_sound_layout<Aeth>() &&
              is_sound_layout<AtomicAckEth>() && is_sound_layout<ImmDt>() && is_sound_layout<Ieth>());

}  // namespace verbena::roce
