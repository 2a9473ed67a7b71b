// SPDX-License-Identifier: BSD-2-Clause
//
// The vendor_err numbers of failed completions.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace verbena {

// ibv_wc::vendor_err: the rule that was broken, where the status is only the specification's class of error.
// Numbers are permanent: new ones are added, none is reused. High digit: the status; low digit: the reason.
enum class VendorError : uint32_t {
  none = 0x00,
  // IBV_WC_LOC_LEN_ERR
  message_too_long = 0x11,    // longer than max_msg_sz (UD: than the MTU)
  atomic_not_8_bytes = 0x12,  // SGEs of an atomic do not add up to 8 bytes
  receive_too_small = 0x13,   // at the receiver: the message did not fit the receive WQE
  // IBV_WC_LOC_QP_OP_ERR
  malformed_request = 0x21,           // the request contradicts itself; found at execution only
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
  local_access = 0x71,  // at the responder, for a request that has consumed a receive WQE
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
  no_path = 0xb3,         // the address leads to no adapter
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
  ibv_wc_status status;          // of the completion with this vendor_err; 0x8x to 0xax: at the requester
  ibv_wc_status receive_status;  // 0x8x to 0xax: of the receive WQE that the responder took; SUCCESS: none
  int responder_event;           // 0x8x to 0xax, no receive WQE: event of the responder's QP, or kNoEvent
  const char* name;              // "rkey_out_of_range"
  const char* text;              // one line for a log
};

// Never null: unknown numbers have a row named "unknown" with IBV_WC_GENERAL_ERR. After 0x8x to 0xax the
// responder's QP is in ERR, too (vol. 1, 9.9.3).
const VendorErrorText* find_vendor_error(uint32_t vendor_err) noexcept;

// Of enum ibv_wc_status, without IBV_WC_: "REM_ACCESS_ERR"; "unknown" for anything else. Never null.
const char* name_of_status(uint32_t status) noexcept;

}  // namespace verbena
