// SPDX-License-Identifier: BSD-2-Clause
//
// Extended reliable connection (XRC), InfiniBand Architecture Specification vol. 1, Annex A14. An XRC_SEND
// queue pair is connected to an XRC_RECV one. Each of its requests names an SRQ of the same domain, in any
// process, by its number. The request takes effect in the adapter of that SRQ: in its memory, protection
// domain and CQ. State and order of the connection are those of the XRC_RECV queue pair.
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
  std::atomic<uint64_t> head{0};      // CompletionRing::known_head
  uint64_t first_eager_position = 0;  // as in PeerPath
  uint64_t last_eager_position = 0;
  bool has_eager = false;
};

// The targets of an XRC_SEND queue pair. Under send_lock.
struct XrcTargets {
  std::vector<std::unique_ptr<XrcTarget>> known;  // the one used last comes last
  int64_t wake_again_at = 0;                      // ns: the responder's successors are not woken before
};

// Makes SRQ `srqn` the target of requester.path. The current WQE of another SRQ is given back
// (abandon_current_wqe). The caller holds send_lock and no hazard guard.
// - remote_srq_unknown: no SRQ has this number.
// - peer_gone: its adapter cannot be asked.
// - remote_operation_failed: its memory cannot be reached.
VendorError select_target(RequesterContext& requester, uint32_t srqn);
// Does the responder refuse the request for this reason? Otherwise the request is tried again.
constexpr bool refuses_target(VendorError error) {
  return error == VendorError::remote_srq_unknown || error == VendorError::remote_operation_failed;
}

// Is the target still there, and of the responder's domain? none, remote_srq_unknown. The caller holds hazard
// guards on both adapters.
VendorError check_target(const RequesterContext& requester);

// The current message will not be finished: completes the WQE that it has taken from an SRQ as flushed. The
// caller holds send_lock and no hazard guard.
void abandon_current_wqe(RequesterContext& requester);

}  // namespace verbena
