// SPDX-License-Identifier: BSD-2-Clause
//
// Whom on the other node a connection is for. The node that is called looks up which of its processes that
// is; the caller learns it with the welcome (handshake.h) and pins it.
#pragma once

#include <cstdint>

#include "wire/process_id.h"

namespace verbena::wire {

enum class TargetKind : uint8_t {
  kQueuePair = 1,   // who made queue pair `number` (RC, UC, XRC_RECV, UD: numbers are one space)
  kCmListener = 2,  // who listens for `service` (IBA vol. 1, 12.7.3 ServiceID) on the address that was called
  kProcess = 3,     // `process` itself, to go on with what began elsewhere
  kNode = 4,        // any process of the node: whoever answers
  kCmProcess = 5,   // as kProcess, for its connection manager
  kGreeting = 6,    // nobody: whether the node is there is all that is asked; the welcome ends it (verbena doctor)
};

// The connection manager has connections of its own: it has a thread of its own, and waits for nothing of the
// data's.
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
