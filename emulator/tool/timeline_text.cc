// SPDX-License-Identifier: BSD-2-Clause
#include <fmt/format.h>
#include <infiniband/verbs.h>

#include <iterator>

#include "engine/rules/qp_state_table.h"
#include "engine/rules/send_rules.h"
#include "engine/rules/vendor_error.h"
#include "tool/status_notes.h"
#include "tool/timeline.h"

namespace verbena::tool {
namespace {

using record::Step;
using record::TimelineRecord;

const char* reply_name(Reply reply) {
  switch (reply) {
    case Reply::kNothing:
      return "nothing";
    case Reply::kSilence:
      return "no reply";
    case Reply::kMore:
      return "in part";
    case Reply::kAcknowledged:
      return "carried out";
    case Reply::kRnr:
      return "receiver not ready";
    case Reply::kInvalidRequest:
      return "refused: invalid request";
    case Reply::kRemoteAccess:
      return "refused: remote access error";
    case Reply::kRemoteOperation:
      return "refused: remote operational error";
  }
  return "?";
}

const char* reason_name(uint8_t vendor_err) {
  const VendorErrorText* const row = find_vendor_error(vendor_err);
  return row != nullptr ? row->name : "?";
}

// enum ibv_wc_opcode without IBV_WC_RECV
const char* completed_name(uint8_t opcode) {
  constexpr const char* kNames[] = {"SEND",      "RDMA_WRITE", "RDMA_READ", "COMP_SWAP",
                                    "FETCH_ADD", "BIND_MW",    "LOCAL_INV", "TSO"};
  return opcode < std::size(kNames) ? kNames[opcode] : "?";
}

const char* message_name(uint8_t attribute) {
  constexpr const char* kNames[] = {"REQ",  "MRA",      "REJ",      "REP", "RTU", "DREQ",
                                    "DREP", "SIDR_REQ", "SIDR_REP", "LAP", "APR"};
  return attribute >= 0x10 && attribute < 0x10 + std::size(kNames) ? kNames[attribute - 0x10] : "?";
}

// enum ibv_event_type without IBV_EVENT_
std::string event_name(uint8_t type) {
  constexpr const char* kNames[] = {"CQ_ERR",
                                    "QP_FATAL",
                                    "QP_REQ_ERR",
                                    "QP_ACCESS_ERR",
                                    "COMM_EST",
                                    "SQ_DRAINED",
                                    "PATH_MIG",
                                    "PATH_MIG_ERR",
                                    "DEVICE_FATAL",
                                    "PORT_ACTIVE",
                                    "PORT_ERR",
                                    "LID_CHANGE",
                                    "PKEY_CHANGE",
                                    "SM_CHANGE",
                                    "SRQ_ERR",
                                    "SRQ_LIMIT_REACHED",
                                    "QP_LAST_WQE_REACHED",
                                    "CLIENT_REREGISTER",
                                    "GID_CHANGE",
                                    "WQ_FATAL"};
  static_assert(std::size(kNames) == IBV_EVENT_WQ_FATAL + 1);
  return type < std::size(kNames) ? kNames[type] : std::to_string(type);
}

std::string status_text(const TimelineRecord& record) {
  if (record.status == IBV_WC_SUCCESS) return "";
  return fmt::format(", {}", status_word(record.status));
}

}  // namespace

const char* operation_name(uint8_t opcode) {
  const SendOperation* const operation = find_send_operation(static_cast<ibv_wr_opcode>(opcode));
  return operation != nullptr ? operation->name : "?";
}

std::string step_text(const TimelineRecord& record) {
  switch (record.step) {
    case Step::kPostSend:
      return fmt::format("post {}, {} bytes, wr_id {:#x}", operation_name(record.opcode), record.length,
                         record.wr_id);
    case Step::kPostReceive:
      return fmt::format("post RECV, {} bytes, wr_id {:#x}", record.length, record.wr_id);
    case Step::kRequestEnd:
      return fmt::format("{} ends, {} bytes, PSN {:#08x}, wr_id {:#x}{}", operation_name(record.opcode),
                         record.length, record.psn, record.wr_id,
                         record.more == 0 ? "" : fmt::format(", vendor_err {:#x}", record.more));
    case Step::kResponse:
      return fmt::format("{} from QP {:#08x}, {} bytes, PSN {:#08x}: {}", operation_name(record.opcode),
                         record.peer_qpn, record.length, record.psn,
                         reply_name(static_cast<Reply>(record.status)));
    case Step::kPollSend:
      return fmt::format("poll {}, wr_id {:#x}{}", completed_name(record.opcode), record.wr_id,
                         status_text(record));
    case Step::kPollReceive:
      return fmt::format("poll RECV, {} bytes, wr_id {:#x}{}", record.length, record.wr_id,
                         status_text(record));
    case Step::kState:
      return fmt::format("{} to {}", name_of_state(static_cast<ibv_qp_state>(record.more)),
                         name_of_state(static_cast<ibv_qp_state>(record.status)));
    case Step::kEvent:
      return fmt::format("event: {}", event_name(record.status));
    case Step::kSmallRequest:
      return fmt::format("{} of {} bytes to QP {:#08x}, PSN {:#08x}, wr_id {:#x}: carried out",
                         operation_name(record.opcode), record.length, record.peer_qpn, record.psn,
                         record.wr_id);
    case Step::kRetry:
      return fmt::format("{} is to be sent again: {}, {} bytes, PSN {:#08x}, wr_id {:#x}",
                         operation_name(record.opcode), reason_name(record.more), record.length, record.psn,
                         record.wr_id);
    case Step::kManagement:
      return fmt::format("{} is sent", message_name(record.opcode));
  }
  return "?";
}

std::string timeline_as_text(const Timeline& timeline) {
  std::string text;
  for (const TimelineEvent& event : timeline.events) {
    const TimelineProcess& process = timeline.processes[event.process];
    const auto time = static_cast<uint64_t>(event.record.head.time + timeline.to_wall_clock);
    const uint64_t second = time / 1'000'000'000;
    text += fmt::format("{:02}:{:02}:{:02}.{:09} {}[{}] thread {}: ", second / 3600 % 24, second / 60 % 60,
                        second % 60, time % 1'000'000'000, process.program, process.pid, event.record.thread);
    if (event.record.qpn != 0) text += fmt::format("QP {:#08x}: ", event.record.qpn);
    text += step_text(event.record) + "\n";
  }
  return text;
}

}  // namespace verbena::tool
