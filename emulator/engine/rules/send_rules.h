// SPDX-License-Identifier: BSD-2-Clause
//
// What a send work request may be, what each operation needs on either side, what completes at the end, and
// the vendor_err numbers by which a failed completion tells its reason. Tables and pure functions.
//
// The order in which a request is judged (as google/rdma-unit-test, cases/loopback_test.cc, expects of
// adapters, and rxe_resp.c): posting; then its length; SEND and WRITE: the local keys; then the responder:
// check_request(), a receive WQE if one is taken (else RNR), that WQE's length, the rkey; READ and atomics:
// the local keys last, when the answer arrives. So a READ with both keys wrong ends in IBV_WC_REM_ACCESS_ERR,
// a WRITE in IBV_WC_LOC_PROT_ERR, and an atomic with a wrong lkey has changed the remote word when it fails.
//
// Sources: ibv_post_send(3), ibv_poll_cq(3); InfiniBand Architecture Specification vol.
// 1, 9.4, 9.7, 10.7, 11.6.2; rdma-core providers/mlx5/qp.c, providers/rxe/rxe.c; the kernel's rxe_verbs.c
// validate_send_wr().
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "emulator.h"
#include "engine/rules/vendor_error.h"

namespace verbena {

// ---- operations ---------------------------------------------------------------------------------------

// How the SGEs of the work request are used.
enum class SgeUse : uint8_t { none, gather, scatter };

// Does the responder answer, and the requester wait for it?
constexpr bool is_acknowledged(ibv_qp_type type) { return type != IBV_QPT_UC && type != IBV_QPT_UD; }

struct SendOperation {
  ibv_wr_opcode opcode;
  const char* name;     // "RDMA_WRITE"
  uint32_t qp_types;    // bit (1 << ibv_qp_type) set: allowed there
  unsigned send_flags;  // of ibv_send_flags, those with a meaning here
  SgeUse sges;
  ibv_wc_opcode completion;         // at the initiator
  bool remote_address = false;      // wr.rdma (or wr.atomic) names memory of the responder
  bool atomic = false;              // exactly 8 bytes, remote address a multiple of 8
  bool carries_immediate = false;   // imm_data travels
  bool carries_invalidate = false;  // invalidate_rkey travels
  bool awaits_response = false;     // occupies one of max_rd_atomic, and of max_dest_rd_atomic over there
  bool consumes_receive = false;    // takes a receive WQE of the responder: RNR possible, receive completion
  unsigned remote_access = 0;       // IBV_ACCESS_REMOTE_*: asked of the responder's qp_access_flags and MR
  ibv_wc_opcode received = IBV_WC_RECV;  // at the responder, if consumes_receive
  unsigned received_flags = 0;           // IBV_WC_WITH_IMM or IBV_WC_WITH_INV, if consumes_receive
};

// Is there a response with bytes, which finishes the request? An acknowledgement finishes the others.
constexpr bool brings_response(const SendOperation& operation) {
  return operation.awaits_response && operation.sges == SgeUse::scatter;
}

// The row of `opcode`, which may hold any number a program wrote (program_enum.h); null if there is no such
// operation.
const SendOperation* find_send_operation(const ibv_wr_opcode& opcode) noexcept;

// ---- posting ------------------------------------------------------------------------------------------

// What is built; the others are legal, and EOPNOTSUPP.
inline constexpr uint32_t kOpcodesBuilt = 1u << IBV_WR_RDMA_WRITE | 1u << IBV_WR_RDMA_WRITE_WITH_IMM |
                                          1u << IBV_WR_SEND | 1u << IBV_WR_SEND_WITH_IMM |
                                          1u << IBV_WR_RDMA_READ | 1u << IBV_WR_ATOMIC_CMP_AND_SWP |
                                          1u << IBV_WR_ATOMIC_FETCH_AND_ADD | 1u << IBV_WR_LOCAL_INV |
                                          1u << IBV_WR_BIND_MW | 1u << IBV_WR_SEND_WITH_INV |
                                          1u << kAtomicWrite;

// An atomic write may always be inline: ibv_wr_atomic_write(3) has no other way.
inline constexpr uint32_t kAtomicWriteSize = 8;

struct SendLimits {
  uint32_t max_sge = 1;              // of the QP (cap.max_send_sge, as given at creation)
  uint32_t max_sge_read = UINT32_MAX;  // of the device (ibv_device_attr::max_sge_rd), for RDMA READs
  uint32_t max_inline = 0;           // of the QP, in bytes
  uint32_t max_message = 1u << 30;   // of the port (ibv_port_attr::max_msg_sz), in bytes; UD: the path MTU
  uint32_t opcodes = kOpcodesBuilt;  // bit (1 << ibv_wr_opcode): the device offers it
};

// Sum of the SGE lengths: 64 bits cannot overflow with num_sge below 2^31. `wr.num_sge` must not be negative.
uint64_t message_length(const ibv_send_wr& wr) noexcept;

// What ibv_post_send(3) answers before the request is queued. 0, or the errno; *why (if `why` is not null)
// then names the rule in one line, a constant string, and is null after success. Reads wr.sg_list only if 0 <
// num_sge <= max_sge.
//   EINVAL      no such opcode; opcode not for this QP type; a flag that contradicts the opcode; negative
//               num_sge; SGEs announced but sg_list null; BIND_MW without a window, or of a range without a region
//   ENOMEM      more SGEs than max_sge (or max_sge_read), more inline bytes than max_inline (mlx5,
//               providers/mlx5/qp.c; rxe:
//   EINVAL) EOPNOTSUPP  an atomic on a device without (mlx5)
// Lengths are not judged here but at execution (below). Flags without a meaning for the opcode, other than
// IBV_SEND_INLINE, are ignored, as in mlx5 and rxe. QP state and queue space are the caller's (mlx5: ENOMEM
// for either: a send queue below RTS, a full queue; rxe: EINVAL for the state).
int check_send_wr(const SendLimits& limits, ibv_qp_type type, const ibv_send_wr& wr,
                  const char** why) noexcept;

// The same for ibv_post_recv(3). EINVAL: num_sge negative or above max_sge (mlx5, rxe), or sg_list null.
int check_recv_wr(uint32_t max_sge, const ibv_recv_wr& wr, const char** why) noexcept;

// ---- execution ------------------------------------------------------------------------------------------

// What execution says of the length of a request that was posted: none, message_too_long, atomic_not_8_bytes.
// Length of an atomic that is not 8: rxe refuses it when posted (EINVAL), mlx5 puts 8 whatever the SGE says;
// the specification makes it IBV_WC_LOC_LEN_ERR (vol. 1, 11.6.2).
VendorError check_send_length(const SendLimits& limits, const SendOperation& operation,
                              uint64_t length) noexcept;

// What the responder says before it looks for a receive WQE or at any memory: does its QP take the operation
// at all? none, remote_opcode_refused, remote_qp_no_right, remote_no_read_resources,
// remote_atomic_misaligned. `qp_access` are its qp_access_flags. These rights are asked for zero-length
// operations, too (rxe_resp.c, check_op_valid()); the rkey is not.
VendorError check_request(const SendOperation& operation, ibv_qp_type responder, unsigned qp_access,
                          uint8_t max_dest_rd_atomic, uint64_t remote_address) noexcept;

}  // namespace verbena
