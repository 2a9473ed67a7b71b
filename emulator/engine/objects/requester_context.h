// SPDX-License-Identifier: BSD-2-Clause
//
// What the responder's code knows of the requester whose request it carries out: its identity, the message
// under way, and the path to the responder's queue pair. A queue pair of this process has one (Qp). So has
// each requester of another node that is connected to a queue pair of this process.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "adapter/completion_ring.h"
#include "adapter/receive_ring.h"
#include "adapter/shared_receive_ring.h"
#include "adapter/tag_list.h"
#include "fabric/peer_adapter.h"
#include "adapter/bounce_ring.h"
#include "observe/observer.h"

namespace verbena {

namespace wire {
struct NetAddress;
}

class Process;
class PayloadStream;
struct XrcTarget;
struct XrcTargets;

// What tag matching knows of the current message to an SRQ with tags (engine/responder/tag_match.h).
struct TagMessage {
  uint64_t tag = 0;       // host byte order, as app_ctx; of a message that is too short for both 0
  uint64_t enabled = 0;   // as in TagList::count_unexpected()
  uint32_t app_ctx = 0;
  uint32_t skipped = 0;   // bytes of headers that do not go into the tag's buffer
  uint32_t byte_len = 0;  // that is known when it begins, of its completions
  uint8_t opcode = 0;     // enum ibv_wc_opcode of these, without IBV_WC_RECV
  TagEnd end = TagEnd::kFree;
  uint32_t wc_flags = 0;  // of the last one
  bool announced = false;   // byte_len is what a rendezvous is about, not what has come
  bool incomplete = false;  // IBV_WC_TM_RNDV_INCOMPLETE
  bool unexpected = false;  // it is counted when it completes
};

// The path to the responder's queue pair. The queue pair is looked up once, on the way to RTR. It is checked
// again whenever its state word shows another generation (peer_path.h).
struct PeerPath {
  std::shared_ptr<PeerAdapter> adapter;  // nullptr: no process of this node has the number
  uint32_t ports = 0;                    // as DirectoryHeader::ports_down; any of these down stops the path
  uint8_t port = 0;  // of the responder's device, where the path leads; 0: nowhere
  SharedQp* qp = nullptr;
  // The whole state word at the last successful check; 0: never. While it stays, there is nothing to check.
  uint64_t responder_state = 0;
  uint64_t taken = 0;  // receive WQEs consumed there
  uint32_t index = 0;
  uint32_t incarnation = 0;
  // The adapter whose memory and completions the requests use: `adapter`, except for XRC: that of the SRQ
  // they name.
  PeerAdapter* memory = nullptr;
  ReceiveRing receives;
  CompletionRing completions;  // with RequesterContext::peer_head
  SharedCq* completion_queue = nullptr;
  uint64_t first_eager_position = 0;  // of the completions of messages that may still lie in receive slots
  uint64_t last_eager_position = 0;
  uint32_t eager_generation = 0;  // CompletionRing::generation of these positions
  bool has_eager = false;
  bool established = false;  // COMM_EST was reported in this generation
  bool asked_for_bounce_ring = false;
  // A receive completion was appended and its event is still to be raised. 0: none; 1: one; 2: one as if
  // solicited.
  uint8_t event_due = 0;
  uint32_t receive_pd = 0;            // the PD there to which the keys of receive requests must belong,
  uint32_t remote_pd = 0;             // and to which those of RDMA operations
  uint32_t current_wqe = 0;               // slot + 1 of the receive WQE taken there for the current message
  BounceRing bounce_ring;             // of `qp`; bytes == nullptr: not found yet
  uint64_t bounced = 0;               // SharedQp::bounce_ring_written
  uint64_t bounced_freed = 0;         // SharedQp::bounce_ring_freed, as last seen
  SharedReceiveRing shared_receives;  // shared == nullptr: `receives` is used
  TagList tags;                       // of `shared_receives`; tags == nullptr: it matches none
  TagMessage tag_message;
  XrcTarget* target = nullptr;        // XRC: the SRQ of the current request, to which `memory` belongs
  uint64_t generation = 0;            // of the peer's state word at the last successful check; 0: never
  uint64_t counted_psn = 0;           // generation and PSN that were last counted as out of sequence
  KnownReady known_ready;             // of `receives`, in this generation
  // The alternate path: as `ports` and `port`.
  uint32_t other_ports = 0;
  uint8_t other_port = 0;
};

// Where requests come from that another process posted.
struct RequestOrigin {
  const wire::NetAddress* node = nullptr;  // its address; nullptr: this process posts them itself
  uint32_t slot = 0;                       // the process, if the address is that of this node (kThisNode)
};

struct RequesterContext {
  Process* process = nullptr;  // the process that carries the request out
  // Of the requester's queue pair. A requester of another node has the index kRemoteIndex.
  uint32_t qpn = 0;
  uint32_t index = 0;
  uint32_t incarnation = 0;
  ibv_qp_type type = IBV_QPT_RC;
  bool may_be_eager = true;  // requests may stay in the receive slot until polled: the ECE option (ece.cc)
  uint32_t mtu = 1024;   // bytes
  uint32_t psn = 0;      // of the current request's first packet
  uint32_t longest_chunk = UINT32_MAX;  // most bytes moved at once (pacing.h)
  // Source of the current request's payload, or destination of the response; nullptr: the memory of this
  // process.
  PayloadStream* payload = nullptr;
  std::shared_ptr<XrcTargets> xrc_targets;  // XRC only
  PeerPath path;
  std::atomic<uint64_t> peer_head{0};  // CompletionRing::known_head of the responder's CQ
  RequestOrigin origin;
  // For observers (engine/responder/response_event.h): bytes of the message that a stream has placed, and the memory of a
  // READ that it answers. Empty without an observer.
  PacketRoute route;
  std::vector<std::byte> kept_bytes;
  iovec fetched{};
};

}  // namespace verbena
