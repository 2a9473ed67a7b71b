// SPDX-License-Identifier: BSD-2-Clause
#include "engine/completion/send_completion.h"

#include "adapter/clock.h"
#include "engine/completion/own_cq.h"
#include "engine/completion/tag_operations.h"
#include "engine/objects/process.h"
#include "engine/rules/send_rules.h"
#include "fabric/port_counters.h"

namespace verbena {

namespace {

// For `verbena status`. A flush tells nothing that the state of the queue pair does not.
void note_error(SharedQp& shared, const SendCompletion& completion, ibv_wc_status status) {
  if (status == IBV_WC_WR_FLUSH_ERR) return;
  shared.error_time.store(0, std::memory_order_relaxed);
  shared.error_wr_id.store(completion.wr_id, std::memory_order_release);
  shared.error.store(
      ErrorWord{static_cast<uint8_t>(status), static_cast<uint8_t>(completion.error), false}.pack(),
      std::memory_order_relaxed);
  shared.error_time.store(wall_clock_ns(), std::memory_order_release);
}

void count_error(const Qp& qp, ibv_wc_status status) {
  const auto count = [&](HwCounter counter) { count_event(qp.process->directory(), *qp.shared, counter); };
  if (status == IBV_WC_WR_FLUSH_ERR) return count(HwCounter::kRequestFlushes);
  count(HwCounter::kRequestErrors);
  if (status == IBV_WC_REM_ACCESS_ERR) count(HwCounter::kAccessRefused);
  if (status == IBV_WC_REM_INV_REQ_ERR) count(HwCounter::kRequestsRefused);
  if (status == IBV_WC_RETRY_EXC_ERR) count(HwCounter::kRetriesExceeded);
  if (status == IBV_WC_RNR_RETRY_EXC_ERR) count(HwCounter::kRnrRetriesExceeded);
}

}  // namespace

bool is_signaled(const Qp& qp, const SendRequest& request) {
  if (request.tag != 0) [[unlikely]]
    return false;
  return qp.signal_all || (request.flags & IBV_SEND_SIGNALED) != 0;
}

void append_send_completion(Qp& qp, const SendCompletion& completion) {
  const bool failed = completion.error != VendorError::none;
  const ibv_wc_status status =
      failed ? find_vendor_error(static_cast<uint32_t>(completion.error))->status : IBV_WC_SUCCESS;
  if (failed) {
    note_error(*qp.shared, completion, status);
    count_error(qp, status);
  }
  append_without_event(own_cq(*qp.send_cq),
                       {.qp_index = qp.index,
                        .qp_incarnation = qp.shared->incarnation,
                        .index = static_cast<uint32_t>(completion.number),
                        .byte_len = completion.length,
                        .status = static_cast<uint8_t>(status),
                        .opcode = static_cast<uint8_t>(find_send_operation(completion.opcode)->completion),
                        .vendor_err = static_cast<uint8_t>(completion.error)},
                       completion.wr_id);
}

void raise_send_event(Qp& qp, bool failed) {
  const auto to = own_cq(*qp.send_cq);
  raise_completion_event(to.cq, to.adapter, failed);
}

bool is_own_event_first(const Qp& qp) {
  const CompChannel* const channel = qp.send_cq->channel;
  return channel != nullptr && qp.recv_cq != nullptr && qp.recv_cq != qp.send_cq &&
         qp.recv_cq->channel == channel;
}

void complete_own(Qp& qp, const SendRequest& request, VendorError error) {
  const bool failed = error != VendorError::none;
  if (failed) {
    const ibv_wc_status status = find_vendor_error(static_cast<uint32_t>(error))->status;
    note_error(*qp.shared, {request.wr_id, request.number, request.opcode, request.length, error}, status);
    count_error(qp, status);
  }
  // The SEND follows the READ, and ends it: it is flushed if the READ has failed.
  if (request.opcode == IBV_WR_SEND) end_rendezvous(*qp.srq, qp, request.tag - 1, request.number, failed);
}

void complete_send(Qp& qp, const SendRequest& request, VendorError error) {
  if (request.tag != 0) [[unlikely]]
    return complete_own(qp, request, error);
  if (error == VendorError::none && !is_signaled(qp, request)) return;
  append_send_completion(qp, {request.wr_id, request.number, request.opcode, request.length, error});
  raise_send_event(qp, error != VendorError::none);
}

void flush_send(Qp& qp, const SendRequest& request) {
  observe_request(qp, request, VendorError::flushed);
  complete_send(qp, request, VendorError::flushed);
}

}  // namespace verbena
