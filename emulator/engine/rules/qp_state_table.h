// SPDX-License-Identifier: BSD-2-Clause
//
// The legal state transitions of a queue pair, and the attributes that each requires or allows. A table and
// pure functions over it, for every QP type, whether or not the emulator implements the type.
//
// Sources: ibv_modify_qp(3); the kernel's qp_state_table and ib_modify_qp_is_ok() in
// drivers/infiniband/core/verbs.c; InfiniBand Architecture Specification vol. 1, 10.3.1 and 11.2.5.2.
#pragma once

#include <infiniband/verbs.h>

namespace verbena {

// What one transition requires of `attr_mask` and allows in it. IBV_QP_STATE is in neither mask: it is always
// allowed, and may be left out if the state stays the same.
struct Transition {
  bool legal;
  int required;
  int optional;
};

// The row for (type, cur, next). For states and types that do not exist `legal` is false. IBV_QPT_XRC_SEND is
// the kernel's XRC_INI, IBV_QPT_XRC_RECV its XRC_TGT.
Transition find_transition(ibv_qp_type type, ibv_qp_state cur, const ibv_qp_state& next) noexcept;

// Bits that the kernel drops unread for this type before it uses the table (uverbs_cmd.c, modify_qp_mask()).
// They are neither required nor refused, and change nothing. 0 except for XRC.
int ignored_attribute_bits(ibv_qp_type type) noexcept;

// May a QP of `type` go from `cur` to `next` with `attr_mask`? Without IBV_QP_STATE in the mask, pass next ==
// cur. `next` may hold any number a program wrote (program_enum.h). Returns:
//   0           yes; *offending_bits = 0
//   EINVAL      the transition does not exist; *offending_bits = 0
//   EINVAL      required bits are missing; *offending_bits = those
//   EINVAL      no bits are missing, but some do not belong to the transition; *offending_bits = those
//   EOPNOTSUPP  bits of no attribute; *offending_bits = those. Checked first, as in the kernel (uverbs_cmd.c,
//               ib_uverbs_modify_qp())
// `offending_bits` may be null.
int check_transition(ibv_qp_type type, ibv_qp_state cur, const ibv_qp_state& next, int attr_mask,
                     int* offending_bits) noexcept;

// "IBV_QP_PKEY_INDEX" for exactly one bit of ibv_qp_attr_mask, "unknown" for anything else. Never null.
const char* name_of_attribute_bit(int bit) noexcept;

// "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"; "unknown" for anything else. Never null.
const char* name_of_state(const ibv_qp_state& state) noexcept;

// "RC", "UC", "UD", "RAW_PACKET", "XRC_SEND", "XRC_RECV"; "unknown" for anything else. Never null.
const char* name_of_qp_type(ibv_qp_type type) noexcept;

}  // namespace verbena
