// SPDX-License-Identifier: BSD-2-Clause
//
// Extended reliable connection (XRC): an XRC_SEND queue pair is connected to an XRC_RECV one, and each of its
// requests names an SRQ of the same domain, in whatever process, by its number. The SRQ's adapter is where
// the request takes effect: its memory, its protection domain, its CQ; the connection's state and order are
// the XRC_RECV queue pair's (InfiniBand Architecture Specification vol. 1, Annex A14).
#pragma once

#include <memory>
#include <vector>

#include "engine/objects.h"

namespace verbena {

struct Xrcd {
  ContextUse context;
  uint32_t entry = 0;              // in the node's table of handles
  uint32_t number = 0;             // of the domain on the node
  std::atomic<uint32_t> users{0};  // SRQs and QPs made with this handle
};

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

// Makes SRQ `srqn` the one that qp.path is about. What is in hand of another is given back
// (abandon_current_wqe). none; remote_srq_unknown: no SRQ has this number; peer_gone: its adapter cannot be
// asked; remote_operation_failed: its memory cannot be reached. The caller holds send_lock and holds no
// hazard guard.
VendorError select_target(Qp& qp, uint32_t srqn);
// Does the responder refuse the request for that? Otherwise it is tried again.
constexpr bool refuses_target(VendorError error) {
  return error == VendorError::remote_srq_unknown || error == VendorError::remote_operation_failed;
}

// Is the target still there, and of the responder's domain? none, remote_srq_unknown. Holding a hazard guard
// on both adapters.
VendorError check_target(const Qp& qp);

// The responder's owner has ended. If another of its holders has taken it over, the path leads there from now
// on (xrc_shared_qp.h); if they have still to notice, they are woken. True: there is, or will be, somebody.
// The caller holds send_lock and holds no hazard guard.
bool follow_responder(Qp& qp);

// The message that has a request of an SRQ in hand will not be finished: completes it as flushed. The caller
// holds send_lock and holds no hazard guard.
void abandon_current_wqe(Qp& qp);

}  // namespace verbena
