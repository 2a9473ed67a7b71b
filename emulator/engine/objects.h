// SPDX-License-Identifier: BSD-2-Clause
//
// The process-private half of each verbs object. The half that peers see lies in the segment
// (adapter/layout.h); what is here is the owner's alone.
//
// Locks, in the order in which one thread may take them:
//   Qp::modify_mutex > Qp::send_lock > Qp::recv_lock > Cq::lock > Context::events_mutex
// None is held while waiting for hazard guards, except modify_mutex.
#pragma once

#include <errno.h>
#include <infiniband/verbs.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "adapter/completion_ring.h"
#include "adapter/receive_ring.h"
#include "adapter/spin_lock.h"
#include "emulator.h"
#include "engine/device/context_use.h"
#include "engine/memory/memory_objects.h"
#include "engine/process.h"
#include "engine/receive/shared_receive_queue.h"
#include "engine/requester/pacing.h"
#include "engine/requester/send_rules.h"
#include "fabric/device_table.h"
#include "fabric/fifo.h"

namespace verbena {

struct Context {
  Process* process = nullptr;
  const DeviceDescription* device = nullptr;
  uint32_t device_index = 0;
  uint64_t file = 0;  // contexts that are imported from each other share it: handles mean the same in them
  std::mutex events_mutex;
  FifoEnd events;     // writes struct ib_uverbs_async_event_desc records
  int async_fd = -1;  // the program's end, the caller's
  std::mutex channels_mutex;
  std::vector<std::unique_ptr<CompChannel>> channels;
  uint64_t events_seen = 0;         // of the device's log; under Process::contexts_mutex
  std::atomic<bool> failed{false};  // IBV_EVENT_DEVICE_FATAL: for good
  std::atomic<uint32_t> users{0};   // objects that look at the context as long as they live
};

// 0, or EIO: a forked child's copy, or the device has failed. Verbs that make, change or ask begin with it;
// those that destroy do not.
inline int usable(const Context& context) {
  return context.process->dead() || context.failed.load(std::memory_order_acquire) ? EIO : 0;
}

// The same for what belongs to a context's file and may have outlived the context.
int usable(Process& process, uint64_t file);

struct CompChannel {
  uint32_t number = 0;
  std::string path;  // taken away with the channel: peers then close their ends
  FifoEnd fifo;
  int program_fd = -1;  // the program closes it without telling anybody; the pipe's identity shows it
  std::atomic<uint32_t> users{0};
  std::mutex drain_mutex;

  ~CompChannel();
};

struct Cq {
  ContextUse context;
  Process* process = nullptr;
  uint32_t index = 0;
  SharedCq* shared = nullptr;
  OwnCompletionRing ring;
  std::mutex resize_mutex;  // before every other lock
  struct OldMemory {
    uint64_t offset;
    uint64_t bytes;
  };
  std::vector<OldMemory> old_rings;  // of rings before the present one; given back when they have been consumed
  uint64_t user_handle = 0;
  bool ignore_overrun = false;
  // ns: the event that moderation keeps back is due then; 0: none. Under doorbell_mutex_
  int64_t moderated_until = 0;
  CompChannel* channel = nullptr;
  std::atomic<uint32_t> users{0};  // queue pairs; twice for one that sends and receives here

  SpinLock lock;  // polling and purging
  CompletionConsumer consumer;
  std::atomic<uint32_t> empty_polls{0};
  std::atomic<int64_t> look_again_at{
      0};  // ns; a stream's next entry is not looked at before (engine/completion/streaming.h)

  std::atomic<bool> failed{false};        // overrun
  std::atomic<uint32_t> async_events{0};  // raised so far
  std::atomic<uint32_t> comp_events{0};   // read by the program so far
};

// A send request as the engine keeps it. The lists point into the program's memory while the program's call
// runs, and into the QP's own copies afterwards.
struct SendRequest {
  uint64_t wr_id;
  uint64_t number;  // running, of the QP
  ibv_wr_opcode opcode;
  unsigned flags;  // ibv_send_flags
  uint32_t immediate;
  uint32_t rkey;
  uint64_t remote_address;
  uint64_t compare_add;
  uint64_t swap;
  const Ah* ah;  // UD: where to
  uint32_t remote_qpn;
  uint32_t remote_qkey;
  uint32_t remote_srqn;  // XRC
  const ibv_sge* sges;
  uint32_t sge_count;
  uint32_t length;
  bool is_inline;  // the bytes are taken already: sges[0].addr points at the QP's copy
  // How far a request has come that is carried out in several steps.
  uint32_t done;
  bool answered;  // by a peer on another node, with all the bytes it asked for
};

enum class Waiting : uint8_t {
  kNothing,
  kReceive,    // RNR: the peer has no receive WQE posted
  kTransport,  // nobody answers there
  kTurn,       // another initiator is in the middle of an atomic on the same word
  kChunk,      // a long transfer goes on when polled
};

struct XrcTarget;
struct XrcTargets;
struct RemotePath;
class Carrier;

// The way to the peer's queue pair, found once on the way to RTR and checked again whenever the peer's gate
// shows another generation.
struct PeerPath {
  std::shared_ptr<PeerAdapter> adapter;  // nullptr: nobody had the number
  // The peer is on another node, and there is no `adapter` (remote/remote_path.h).
  std::shared_ptr<RemotePath> remote;
  uint32_t ports = 0;  // as DirectoryHeader::ports_down: one of these down, and nothing passes
  uint32_t small_size =
      0;  // with `responder`: messages of up to so many bytes may go the fast path (small_send.h)
  bool rdma_may_be_short = false;  // likewise (small_rdma.h)
  KnownRegion written, read;       // of the peer's, by requests on the fast path
  SharedQp* qp = nullptr;
  // the whole word, when everything was last found right: while it stays, there is nothing to
  uint64_t responder_state = 0;
                       // check; 0: never
  uint64_t taken = 0;  // receive WQEs consumed there
  uint32_t index = 0;
  uint32_t incarnation = 0;
  // The adapter whose memory and completions requests are about: `adapter`, but for XRC that of the SRQ they name.
  PeerAdapter* memory = nullptr;
  ReceiveRing receives;
  CompletionRing completions;  // with Qp::peer_head
  SharedCq* completion_queue = nullptr;
  uint64_t first_eager_position = 0;  // of the completions of messages that may still lie in receive slots
  uint64_t last_eager_position = 0;
  uint32_t eager_generation = 0;  // CompletionRing::generation of these positions
  bool has_eager = false;
  bool established = false;  // COMM_EST is told, in this generation
  // A receive completion was appended whose event is still to be raised: 0 none, 1 one, 2 one as if
  // solicited.
  uint8_t event_due = 0;
  uint32_t receive_pd = 0;            // to which the keys of receive requests must belong there,
  uint32_t remote_pd = 0;             // and to which those of RDMA operations
  uint32_t current_wqe = 0;               // slot + 1 of what was taken from there for the current message
  SharedReceiveRing shared_receives;  // shared == nullptr: `receives` it is
  XrcTarget* target = nullptr;        // XRC: the SRQ that `memory` to here and the completions are about (xrc.h)
  uint64_t generation = 0;            // of the peer's gate, when everything was last found right; 0: never
};

struct Datagrams;
struct ProxyQp;
// A handle of the program on an XRC_RECV queue pair.
struct QpHandle {
  Context* context;
  Xrcd* xrcd;
  uint64_t user_handle;
  uint32_t async_events;
};

// Many queue pairs are used in turn, and what one message touches of each is fetched from further away than from the
// nearest cache: fields lie together by who uses them. No two groups share a cache line.
struct Qp {
  // ---- read with each request and completion; changed by verbs off the data path ----
  alignas(kCacheLine) Process* process = nullptr;
  SharedQp* shared = nullptr;
  ContextUse context;
  Cq* send_cq = nullptr;
  Pd* pd = nullptr;
  Srq* srq = nullptr;  // receives come from there, and the queue below is not used
  uint32_t index = 0;
  ibv_qp_type type = IBV_QPT_RC;
  std::atomic<ibv_qp_state> state{IBV_QPS_RESET};
  uint32_t mtu = 1024;
  ibv_qp_cap cap{};
  std::atomic<uint32_t> expected_target{
      UINT32_MAX};  // slot: whom the next request will access, by all likelihood
  uint32_t sq_inline_stride = 0;
  bool signal_all = false;
  bool may_be_eager = true;  // requests may wait in the receive slot to be polled: the ECE option (ece.cc)

  // ---- receive queue, under recv_lock ----
  alignas(kCacheLine) SpinLock recv_lock;
  uint64_t rq_posted = 0;
  std::atomic<uint64_t> rq_freed{0};  // slots below are free again: their completions were polled
  ReceiveRing receives;
  std::vector<uint64_t> rq_wr_ids;
  KnownRegion scattered;

  // ---- requester, under send_lock ----
  alignas(kCacheLine) SpinLock send_lock;
  Waiting waiting = Waiting::kNothing;
  bool listed = false;           // on the process's pending list, under its mutex
  bool requester_flag_set = false;  // the peer wakes this process when it posts a receive
  bool drain_event_due = false;  // SQD: raise SQ_DRAINED when the last request is finished
  uint32_t send_psn = 0;
  uint64_t sq_size = 0;
  uint64_t sq_posted = 0;
  uint64_t sq_next = 0;               // first request not finished
  std::atomic<uint64_t> sq_freed{0};  // slots below are free again
  int64_t give_up_at = 0;             // ns, CLOCK_MONOTONIC; INT64_MAX: never
  int64_t try_again_at = 0;           // ns; not before, unless the service thread does
  std::vector<SendRequest> sq;        // requests in [sq_next, sq_posted), by number % sq.size()
  std::vector<ibv_sge> sq_sges;
  std::vector<std::byte> sq_inline;
  KnownRegion gathered, read_into;  // for requests on the fast path
  Pacing pacing;
  std::shared_ptr<Datagrams> datagrams;      // UD (datagram.h)
  std::shared_ptr<XrcTargets> xrc_targets;   // XRC_SEND, under send_lock
  // of one that stands for an initiator on another node (remote/remote_requester.h)
  Carrier* carrier = nullptr;
  PeerPath path;
  std::atomic<uint64_t> peer_head{0};  // CompletionRing::known_head of the peer's CQ
  VendorError wait_reason{};

  // ---- seldom ----
  ibv_qp_attr attr{};  // what modify_qp was given last
  Cq* recv_cq = nullptr;
  uint64_t user_handle = 0;
  std::atomic<uint32_t> async_events{0};
  std::mutex modify_mutex;
  uint32_t responder_resources = 0;         // held of max_res_rd_atom; under modify_mutex
  std::atomic<bool> flush_receives{false};  // in ERR: receive WQEs are still to be flushed
  Xrcd* xrcd = nullptr;                     // XRC_RECV; then events go to all handles
  std::shared_ptr<ProxyQp> proxy;       // a handle on another process's XRC_RECV queue pair (xrc_shared_qp.h)
  bool blocks_own_multicast = false;        // UD: IBV_QP_CREATE_BLOCK_SELF_MCAST_LB
  std::mutex handles_mutex;
  std::vector<QpHandle> handles;
  // Memory in the segment, to be given back.
  uint64_t rq_offset = 0;
  uint64_t rq_bytes = 0;
};

// Scatters what has landed in the receive slots and waits to be polled from `cq` (completion_queue.cc).
void scatter_eager(Cq& cq);

}  // namespace verbena
