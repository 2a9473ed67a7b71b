// SPDX-License-Identifier: BSD-2-Clause
//
// The addressee of a connection on the other node. The called node looks up its process. The connecting
// process learns the process from the welcome (handshake.h), and uses that one from then on.
#pragma once

#include <cstdint>

#include "wire/process_id.h"

namespace verbena::wire {

enum class TargetKind : uint8_t {
  kQueuePair = 1,   // the process of queue pair `number` (RC, UC, XRC_RECV, UD share one number space)
  // the process that listens for `service` (IBA vol. 1, 12.7.3 ServiceID) on the called address
  kCmListener = 2,
  kProcess = 3,     // `process` itself, to continue what began with another connection
  kNode = 4,        // any process of the node
  kCmProcess = 5,   // as kProcess, for its connection manager
  // no process: only tests whether the node is there, and ends with the welcome (verbena doctor)
  kGreeting = 6,
};

// The connection manager has its own connections: it has a thread of its own, and never waits for data.
constexpr bool is_for_cm(TargetKind kind) {
  return kind == TargetKind::kCmListener || kind == TargetKind::kCmProcess;
}

struct Target {
  TargetKind kind = TargetKind::kNode;
  uint32_t number = 0;
  uint64_t service = 0;
  ProcessId process{};

  friend bool operator==(const Target&, const Target&) = default;

  static Target queue_pair(uint32_t qpn) { return {TargetKind::kQueuePair, qpn, 0, {}}; }
  static Target cm_listener(uint64_t service) { return {TargetKind::kCmListener, 0, service, {}}; }
  static Target of_process(const ProcessId& process) { return {TargetKind::kProcess, 0, 0, process}; }
  static Target cm_of_process(const ProcessId& process) { return {TargetKind::kCmProcess, 0, 0, process}; }
  static Target any_process() { return {}; }
  static Target greeting() { return {TargetKind::kGreeting, 0, 0, {}}; }
};

}  // namespace verbena::wire
