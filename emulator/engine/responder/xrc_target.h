// SPDX-License-Identifier: BSD-2-Clause
//
// Extended reliable connection (XRC): an XRC_SEND queue pair is connected to an XRC_RECV one, and each of its
// requests names an SRQ of the same domain, in whatever process, by its number. The SRQ's adapter is where
// the request takes effect: its memory, its protection domain, its CQ; the connection's state and order are
// the XRC_RECV queue pair's (InfiniBand Architecture Specification vol. 1, Annex A14).
#pragma once

#include <memory>
#include <vector>

#include "engine/objects/requester_context.h"
#include "engine/rules/send_rules.h"

namespace verbena {

// An SRQ that a requester has sent to.
struct XrcTarget {
  uint32_t srqn = 0;
  std::shared_ptr<PeerAdapter> adapter;
  uint32_t index = 0;
  uint32_t incarnation = 0;
  SharedSrq* srq = nullptr;
  SharedReceiveRing receives;
  SharedCq* completion_queue = nullptr;
  CompletionRing completions;
  std::atomic<uint64_t> head{0};       // CompletionRing::known_head
  uint64_t first_eager_position = 0;  // as in PeerPath
  uint64_t last_eager_position = 0;
  bool has_eager = false;
};

// What an XRC_SEND queue pair keeps of them. Under send_lock.
struct XrcTargets {
  std::vector<std::unique_ptr<XrcTarget>> known;  // the one used last comes last
  int64_t wake_again_at = 0;                      // ns: the responder's successors are not woken before
};

// Makes SRQ `srqn` the one that requester.path is about. What is in hand of another is given back
// (abandon_current_wqe). none; remote_srq_unknown: no SRQ has this number; peer_gone: its adapter cannot be
// asked; remote_operation_failed: its memory cannot be reached. The caller holds send_lock and holds no
// hazard guard.
VendorError select_target(RequesterContext& requester, uint32_t srqn);
// Does the responder refuse the request for that? Otherwise it is tried again.
constexpr bool refuses_target(VendorError error) {
  return error == VendorError::remote_srq_unknown || error == VendorError::remote_operation_failed;
}

// Is the target still there, and of the responder's domain? none, remote_srq_unknown. Holding a hazard guard
// on both adapters.
VendorError check_target(const RequesterContext& requester);

// The message that has a request of an SRQ in hand will not be finished: completes it as flushed. The caller
// holds send_lock and holds no hazard guard.
void abandon_current_wqe(RequesterContext& requester);

}  // namespace verbena
