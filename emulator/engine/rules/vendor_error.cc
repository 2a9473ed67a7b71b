// SPDX-License-Identifier: BSD-2-Clause
#include "engine/rules/vendor_error.h"

namespace verbena {
namespace {

constexpr ibv_wc_status kNoReceive = IBV_WC_SUCCESS;

#define ROW(error, status, receive, event, text) \
  { VendorError::error, status, receive, event, #error, text }
// clang-format off
constexpr VendorErrorText kVendorErrors[] = {
    ROW(none, IBV_WC_SUCCESS, kNoReceive, kNoEvent, "no error"),
    ROW(message_too_long, IBV_WC_LOC_LEN_ERR, kNoReceive, kNoEvent,
        "the message is longer than the port's max_msg_sz (UD: than the MTU)"),
    ROW(atomic_not_8_bytes, IBV_WC_LOC_LEN_ERR, kNoReceive, kNoEvent, "the SGEs of an atomic add up to other than 8 bytes"),
    ROW(receive_too_small, IBV_WC_LOC_LEN_ERR, kNoReceive, kNoEvent, "the message did not fit into the receive request's SGEs"),
    ROW(malformed_request, IBV_WC_LOC_QP_OP_ERR, kNoReceive, kNoEvent, "the request contradicts itself"),
    ROW(too_many_outstanding_reads, IBV_WC_LOC_QP_OP_ERR, kNoReceive, kNoEvent,
        "READ or atomic on a QP with max_rd_atomic 0"),
    ROW(address_handle_other_pd, IBV_WC_LOC_QP_OP_ERR, kNoReceive, kNoEvent,
        "the address handle is of another PD than the QP"),
    ROW(lkey_unknown, IBV_WC_LOC_PROT_ERR, kNoReceive, kNoEvent, "no MR has the lkey of an SGE"),
    ROW(lkey_other_pd, IBV_WC_LOC_PROT_ERR, kNoReceive, kNoEvent, "the lkey of an SGE is of another PD than the QP"),
    ROW(lkey_out_of_range, IBV_WC_LOC_PROT_ERR, kNoReceive, kNoEvent, "an SGE reaches outside its MR"),
    ROW(lkey_no_local_write, IBV_WC_LOC_PROT_ERR, kNoReceive, kNoEvent,
        "an SGE is to be written, and its MR has no IBV_ACCESS_LOCAL_WRITE"),
    ROW(local_memory_gone, IBV_WC_LOC_PROT_ERR, kNoReceive, kNoEvent, "memory under a local MR is not mapped any more"),
    ROW(flushed, IBV_WC_WR_FLUSH_ERR, kNoReceive, kNoEvent, "the QP was in the error state before the request was carried out"),
    ROW(bind_refused, IBV_WC_MW_BIND_ERR, kNoReceive, kNoEvent, "the memory window could not be bound"),
    ROW(bad_response, IBV_WC_BAD_RESP_ERR, kNoReceive, kNoEvent, "the responder's answer does not belong to the request"),
    ROW(local_access, IBV_WC_LOC_ACCESS_ERR, kNoReceive, kNoEvent,
        "the WRITE with immediate that took this receive request was not allowed to write"),
    ROW(remote_receive_too_small, IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_LEN_ERR, kNoEvent,
        "the message did not fit into the responder's receive request"),
    ROW(remote_opcode_refused, IBV_WC_REM_INV_REQ_ERR, kNoReceive, IBV_EVENT_QP_REQ_ERR,
        "the responder's QP does not take this operation"),
    ROW(remote_atomic_misaligned, IBV_WC_REM_INV_REQ_ERR, kNoReceive, IBV_EVENT_QP_REQ_ERR,
        "the remote address of an atomic is no multiple of 8"),
    ROW(remote_no_read_resources, IBV_WC_REM_INV_REQ_ERR, kNoReceive, IBV_EVENT_QP_REQ_ERR,
        "READ or atomic towards a QP with max_dest_rd_atomic 0"),
    ROW(remote_qp_no_right, IBV_WC_REM_INV_REQ_ERR, kNoReceive, IBV_EVENT_QP_REQ_ERR,
        "the responder's qp_access_flags do not allow this operation"),
    ROW(remote_srq_unknown, IBV_WC_REM_INV_REQ_ERR, kNoReceive, IBV_EVENT_QP_REQ_ERR,
        "no SRQ of the responder's XRC domain has the number"),
    ROW(rkey_unknown, IBV_WC_REM_ACCESS_ERR, IBV_WC_LOC_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR, "no MR over there has this rkey"),
    ROW(rkey_other_pd, IBV_WC_REM_ACCESS_ERR, IBV_WC_LOC_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR,
        "the rkey is of another PD than the responder's QP"),
    ROW(rkey_out_of_range, IBV_WC_REM_ACCESS_ERR, IBV_WC_LOC_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR,
        "the remote range reaches outside the MR of the rkey"),
    ROW(rkey_no_right, IBV_WC_REM_ACCESS_ERR, IBV_WC_LOC_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR,
        "the MR of the rkey was not registered with the IBV_ACCESS_REMOTE_ right needed"),
    ROW(remote_memory_gone, IBV_WC_REM_ACCESS_ERR, IBV_WC_LOC_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR,
        "memory under the MR of the rkey is not mapped any more"),
    ROW(rkey_other_qp, IBV_WC_REM_ACCESS_ERR, IBV_WC_LOC_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR,
        "the rkey is of a memory window of type 2 that was bound on another QP"),
    ROW(remote_operation_failed, IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR, kNoEvent,
        "the responder could not finish: its receive request or its CQ is at fault"),
    ROW(peer_not_ready, IBV_WC_RETRY_EXC_ERR, kNoReceive, kNoEvent, "there is no QP at the address, or it does not receive in its state"),
    ROW(peer_gone, IBV_WC_RETRY_EXC_ERR, kNoReceive, kNoEvent, "the peer's process has died, or has closed the device"),
    ROW(no_path, IBV_WC_RETRY_EXC_ERR, kNoReceive, kNoEvent, "the address leads to no adapter"),
    ROW(peer_mismatch, IBV_WC_RETRY_EXC_ERR, kNoReceive, kNoEvent, "the QP at the address is connected to another one, or with another PSN"),
    ROW(peer_silent, IBV_WC_RETRY_EXC_ERR, kNoReceive, kNoEvent, "no answer came in (retry_cnt + 1) timeouts"),
    ROW(port_down, IBV_WC_RETRY_EXC_ERR, kNoReceive, kNoEvent, "the port here or the peer's is down"),
    ROW(no_receive_posted, IBV_WC_RNR_RETRY_EXC_ERR, kNoReceive, kNoEvent, "the responder had no receive request posted, rnr_retry times"),
    ROW(adapter_failed, IBV_WC_FATAL_ERR, kNoReceive, kNoEvent, "the adapter itself has failed"),
};
// clang-format on
#undef ROW

constexpr VendorErrorText kUnknownError = {
    VendorError::none, IBV_WC_GENERAL_ERR, kNoReceive, kNoEvent, "unknown", "no vendor_err of this adapter"};

}  // namespace

const VendorErrorText* find_vendor_error(uint32_t vendor_err) noexcept {
  for (const VendorErrorText& row : kVendorErrors)
    if (static_cast<uint32_t>(row.error) == vendor_err) return &row;
  return &kUnknownError;
}

}  // namespace verbena
