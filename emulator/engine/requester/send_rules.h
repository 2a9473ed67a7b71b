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

// ---- failed completions -------------------------------------------------------------------------------

// ibv_wc::vendor_err of verbena0. The status says what the specification says; this says which rule it was.
// Numbers are for ever: new ones are added, none is reused. High digit: the status; low digit: the reason.
enum class VendorError : uint32_t {
  none = 0x00,
  // IBV_WC_LOC_LEN_ERR
  message_too_long = 0x11,    // longer than max_msg_sz (UD: than the MTU)
  atomic_not_8_bytes = 0x12,  // SGEs of an atomic do not add up to 8 bytes
  receive_too_small = 0x13,   // at the receiver: the message did not fit the receive WQE
  // IBV_WC_LOC_QP_OP_ERR
  malformed_request = 0x21,           // what was posted contradicts itself, found at execution only
  too_many_outstanding_reads = 0x22,  // READ or atomic with max_rd_atomic 0
  address_handle_other_pd = 0x23,     // UD: the handle is of another PD than the QP
  // IBV_WC_LOC_PROT_ERR
  lkey_unknown = 0x31,
  lkey_other_pd = 0x32,
  lkey_out_of_range = 0x33,
  lkey_no_local_write = 0x34,
  local_memory_gone = 0x35,  // pages behind the MR are not mapped any more
  // IBV_WC_WR_FLUSH_ERR
  flushed = 0x41,
  // IBV_WC_MW_BIND_ERR
  bind_refused = 0x51,
  // IBV_WC_BAD_RESP_ERR
  bad_response = 0x61,
  // IBV_WC_LOC_ACCESS_ERR
  local_access = 0x71,  // at the responder, on a request that holds a receive WQE
  // IBV_WC_REM_INV_REQ_ERR
  remote_receive_too_small = 0x81,
  remote_opcode_refused = 0x82,  // operation not supported by the responder's QP
  remote_atomic_misaligned = 0x83,
  remote_no_read_resources = 0x84,  // READ or atomic towards max_dest_rd_atomic 0
  remote_qp_no_right = 0x85,        // qp_access_flags without the IBV_ACCESS_REMOTE_ right
  remote_srq_unknown = 0x86,        // XRC: no SRQ of the responder's domain has the number
  // IBV_WC_REM_ACCESS_ERR
  rkey_unknown = 0x91,
  rkey_other_pd = 0x92,
  rkey_out_of_range = 0x93,
  rkey_no_right = 0x94,       // MR without the IBV_ACCESS_REMOTE_* right
  remote_memory_gone = 0x95,  // pages behind the MR are not mapped any more
  rkey_other_qp = 0x96,       // memory window of type 2, bound on another QP
  // IBV_WC_REM_OP_ERR
  remote_operation_failed = 0xa1,  // its receive WQE's memory, or its CQ, is at fault
  // IBV_WC_RETRY_EXC_ERR
  peer_not_ready = 0xb1,  // no QP there, or one in a state that does not answer
  peer_gone = 0xb2,       // its process died, exec'd or closed the device
  no_path = 0xb3,         // the address leads nowhere
  peer_mismatch = 0xb4,   // a QP is there, but it expects another source, PSN or MTU
  peer_silent = 0xb5,     // no answer in time
  port_down = 0xb6,       // this port, or the peer's
  // IBV_WC_RNR_RETRY_EXC_ERR
  no_receive_posted = 0xc1,
  // IBV_WC_FATAL_ERR
  adapter_failed = 0xf1,
};

inline constexpr int kNoEvent = -1;

struct VendorErrorText {
  VendorError error;
  ibv_wc_status status;          // of the completion it comes with; 0x8x to 0xax: at the initiator
  ibv_wc_status receive_status;  // then, of the receive WQE the responder had taken; SUCCESS: it takes none
  int responder_event;           // then, if it took none: ibv_event_type of the responder's QP, or kNoEvent
  const char* name;              // "rkey_out_of_range"
  const char* text;              // one line for a log
};

// Never null: unknown numbers find a row named "unknown" with IBV_WC_GENERAL_ERR. After any of 0x8x to 0xax
// the responder's QP is in ERR, too (vol. 1, 9.9.3).
const VendorErrorText* find_vendor_error(uint32_t vendor_err) noexcept;

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
