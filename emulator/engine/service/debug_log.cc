// SPDX-License-Identifier: BSD-2-Clause
#include "engine/service/debug_log.h"

#include <infiniband/verbs.h>

#include "engine/rules/send_rules.h"
#include "observe/log.h"
#include "observe/observer.h"

namespace verbena {
namespace {

const char* name_of_operation(uint8_t opcode) {
  const SendOperation* const operation = find_send_operation(static_cast<ibv_wr_opcode>(opcode));
  return operation != nullptr ? operation->name : "?";
}

class DebugLog final : public Observer {
 public:
  void on_request(const RequestEvent& event) override {
    VERBENA_DEBUG(
        "QP 0x%06x: request %llu, wr_id 0x%llx: %s of %u bytes, PSN 0x%06x, ends with vendor_err 0x%x",
        event.qpn, static_cast<unsigned long long>(event.number),
        static_cast<unsigned long long>(event.wr_id), name_of_operation(event.opcode), event.length,
        event.psn, event.vendor_err);
  }
  void on_response(const ResponseEvent& event) override {
    VERBENA_DEBUG("QP 0x%06x: %s of %u bytes from QP 0x%06x, PSN 0x%06x: answer %u, vendor_err 0x%x",
                  event.target_qpn, name_of_operation(event.opcode), event.length, event.source_qpn,
                  event.psn, event.verdict, event.vendor_err);
  }
  void on_completion(const CompletionEvent& event) override {
    VERBENA_DEBUG("QP index %u: completion: status %u, opcode %u, %u bytes, flags 0x%x, vendor_err 0x%x",
                  event.qp_index, event.status, event.opcode, event.byte_len, event.flags, event.vendor_err);
  }
};

}  // namespace

void begin_debug_log() {
  static DebugLog log;
  if (logs(LogLevel::kDebug) && observer() == nullptr) set_observer(&log);
}

}  // namespace verbena
