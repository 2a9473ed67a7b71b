// SPDX-License-Identifier: BSD-2-Clause
//
// The rules for send work requests: what may be posted, what each operation needs at either end, and how it
// completes. Tables and pure functions.
//
// A request is checked in this order (as in rxe_resp.c, and as google/rdma-unit-test, cases/loopback_test.cc,
// expects of adapters):
// 1. when posted: check_send_wr();
// 2. its length: check_send_length();
// 3. SEND and WRITE: the local keys;
// 4. at the responder: check_request(); a receive WQE if one is consumed (else RNR), and its length; the
//    rkey;
// 5. READ and atomics: the local keys, when the response arrives.
//
// So with both keys wrong a READ ends in IBV_WC_REM_ACCESS_ERR and a WRITE in IBV_WC_LOC_PROT_ERR. An atomic
// with a wrong lkey has changed the remote word when it fails.
//
// Sources: ibv_post_send(3), ibv_poll_cq(3); InfiniBand Architecture Specification vol. 1, 9.4, 9.7, 10.7,
// 11.6.2; rdma-core providers/mlx5/qp.c, providers/rxe/rxe.c; the kernel's rxe_verbs.c validate_send_wr().
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "emulator.h"
#include "engine/rules/vendor_error.h"

namespace verbena {

// ---- operations ---------------------------------------------------------------------------------------

// How the SGEs of the work request are used.
enum class SgeUse : uint8_t { none, gather, scatter };

// Does each request name its own destination, so that the queue pair has no peer?
constexpr bool is_unconnected(ibv_qp_type type) { return type == IBV_QPT_UD || type == IBV_QPT_RAW_PACKET; }

// Does the responder acknowledge requests, and the requester wait for that?
constexpr bool is_acknowledged(ibv_qp_type type) { return type != IBV_QPT_UC && !is_unconnected(type); }

struct SendOperation {
  ibv_wr_opcode opcode;
  const char* name;     // "RDMA_WRITE"
  uint32_t qp_types;    // bit (1 << ibv_qp_type): allowed on that type
  unsigned send_flags;  // of ibv_send_flags, those with a meaning here
  SgeUse sges;
  ibv_wc_opcode completion;         // at the initiator
  bool remote_address = false;      // wr.rdma (or wr.atomic) names memory of the responder
  bool atomic = false;              // exactly 8 bytes, remote address a multiple of 8
  bool carries_immediate = false;   // imm_data travels
  bool carries_invalidate = false;  // invalidate_rkey travels
  bool awaits_response = false;     // uses one of max_rd_atomic and of the responder's max_dest_rd_atomic
  bool consumes_receive = false;    // takes a receive WQE of the responder: RNR possible, receive completion
  unsigned remote_access = 0;       // IBV_ACCESS_REMOTE_*: required of the responder's qp_access_flags and MR
  ibv_wc_opcode received = IBV_WC_RECV;  // at the responder, if consumes_receive
  unsigned received_flags = 0;           // IBV_WC_WITH_IMM or IBV_WC_WITH_INV, if consumes_receive
};

// Does a response with bytes finish the request? An acknowledgement finishes the others.
constexpr bool brings_response(const SendOperation& operation) {
  return operation.awaits_response && operation.sges == SgeUse::scatter;
}

// The row of `opcode`, which may hold any number a program wrote (program_enum.h). Null: no such operation.
const SendOperation* find_send_operation(const ibv_wr_opcode& opcode) noexcept;

// ---- posting ------------------------------------------------------------------------------------------

// The opcodes that the emulator implements. The others are legal, and refused with EOPNOTSUPP.
inline constexpr uint32_t kOpcodesBuilt = 1u << IBV_WR_RDMA_WRITE | 1u << IBV_WR_RDMA_WRITE_WITH_IMM |
                                          1u << IBV_WR_SEND | 1u << IBV_WR_SEND_WITH_IMM |
                                          1u << IBV_WR_RDMA_READ | 1u << IBV_WR_ATOMIC_CMP_AND_SWP |
                                          1u << IBV_WR_ATOMIC_FETCH_AND_ADD | 1u << IBV_WR_LOCAL_INV |
                                          1u << IBV_WR_BIND_MW | 1u << IBV_WR_SEND_WITH_INV |
                                          1u << kAtomicWrite;

// Inline bytes that every QP accepts for an atomic write: ibv_wr_atomic_write(3) always posts inline.
inline constexpr uint32_t kAtomicWriteSize = 8;

struct SendLimits {
  uint32_t max_sge = 1;              // of the QP (cap.max_send_sge, as given at creation)
  uint32_t max_sge_read = UINT32_MAX;  // of the device (ibv_device_attr::max_sge_rd), for RDMA READs
  uint32_t max_inline = 0;           // of the QP, in bytes
  uint32_t max_message = 1u << 30;   // of the port (ibv_port_attr::max_msg_sz), in bytes; UD: the path MTU
  uint32_t opcodes = kOpcodesBuilt;  // bit (1 << ibv_wr_opcode): the device offers it
};

// Sum of the SGE lengths. 64 bits cannot overflow with num_sge below 2^31. `wr.num_sge` must not be negative.
uint64_t message_length(const ibv_send_wr& wr) noexcept;

// The checks of ibv_post_send(3) before the request is queued. Returns 0, or the errno:
//   EINVAL      no such opcode; opcode not for this QP type; IBV_SEND_INLINE with an opcode that cannot be
//               inline; negative num_sge; num_sge above 0 and sg_list null; BIND_MW without a window, or of a
//               range without a region
//   ENOMEM      more SGEs than max_sge (or max_sge_read), or more inline bytes than max_inline (as mlx5,
//               providers/mlx5/qp.c; rxe: EINVAL)
//   EOPNOTSUPP  an opcode that the device does not offer, for instance an atomic (mlx5)
// After a refusal *why (if `why` is not null) names the rule in one line, a constant string. After success
// *why is null. wr.sg_list is read only if 0 < num_sge <= max_sge.
//
// Lengths are checked at execution (below). Other flags without a meaning for the opcode are ignored, as in
// mlx5 and rxe. The caller checks QP state and queue space. (mlx5: ENOMEM for a send queue below RTS and for
// a full queue; rxe: EINVAL for the state.)
int check_send_wr(const SendLimits& limits, ibv_qp_type type, const ibv_send_wr& wr,
                  const char** why) noexcept;

// The same for ibv_post_recv(3). EINVAL: num_sge is negative or above max_sge (as mlx5, rxe), or num_sge is
// above 0 and sg_list null.
int check_recv_wr(uint32_t max_sge, const ibv_recv_wr& wr, const char** why) noexcept;

// ---- execution ------------------------------------------------------------------------------------------

// Checks the length of a posted request. Returns none, message_too_long or atomic_not_8_bytes. An atomic of
// another length than 8 is IBV_WC_LOC_LEN_ERR in the specification (vol. 1, 11.6.2). rxe refuses it when
// posted (EINVAL); mlx5 uses 8 whatever the SGE says.
VendorError check_send_length(const SendLimits& limits, const SendOperation& operation,
                              uint64_t length) noexcept;

// The responder's first check, before it looks for a receive WQE or at memory: does its QP accept the
// operation? Returns none, remote_opcode_refused, remote_qp_no_right, remote_no_read_resources or
// remote_atomic_misaligned. `qp_access`: its qp_access_flags. These rights are required even for zero-length
// operations (rxe_resp.c, check_op_valid()); a valid rkey is not.
VendorError check_request(const SendOperation& operation, ibv_qp_type responder, unsigned qp_access,
                          uint8_t max_dest_rd_atomic, uint64_t remote_address) noexcept;

}  // namespace verbena
