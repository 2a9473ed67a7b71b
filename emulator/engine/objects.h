// SPDX-License-Identifier: BSD-2-Clause
//
// The process-private half of each verbs object. The half that peers see lies in the segment
// (adapter/layout.h); what is here is the owner's alone.
//
// Locks, in the order in which one thread may take them:
//   Qp::modify_mutex > Qp::send_lock > Qp::recv_lock > Cq::lock > Context::events_mutex
// None is held while waiting for visitors, except modify_mutex.
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
#include "engine/responder/request.h"
#include "engine/responder/requester_context.h"
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
  int64_t moderated_until = 0;  // ns: the event that moderation keeps back is due then; 0: none. Under attend_mutex_
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
struct SendRequest : Request {
  uint64_t wr_id;
  const Ah* ah;  // UD: where to
  uint32_t remote_qpn;
  uint32_t remote_qkey;
  const ibv_sge* sges;
  uint32_t sge_count;
  bool is_inline;  // the bytes are taken already: sges[0].addr points at the QP's copy
  bool answered;   // by a peer on another node, with all the bytes it asked for
};

enum class Waiting : uint8_t {
  kNothing,
  kReceive,    // RNR: the peer has no receive WQE posted
  kTransport,  // nobody answers there
  kAtomicLock,  // another requester is in the middle of an atomic on the same word; or a key is still in use
  kSlice,      // a long transfer goes on when polled
};

// What requests on the fast path compare, and what they remember of the peer (short_way.h).
struct FastPath {
  uint64_t gate = 0;        // PeerPath::gate when the rest was found; 0: the fast path is closed
  uint32_t small_size = 0;  // SENDs of up to so many bytes may take it (small_send.h)
  bool rdma = false;        // WRITEs and READs may (small_rdma.h)
  KnownRegion written, read;  // of the peer's
};

// How far requests have come that were handed to the transport. Numbers are running numbers of the queue pair. Up to
// sq_next they are finished; [sq_next, sent) are in flight.
struct Flight {
  uint64_t sent = 0;          // the first request that is not sent as a whole
  uint64_t begun = 0;         // the first of which nothing has been sent, nor would have been by an adapter
  uint64_t acknowledged = 0;  // those below have been carried out, but for responses that are on their way
  uint64_t refused_at = 0;    // 1 + number: refused for `refusal`, once those before it are finished
  VendorError refusal = VendorError::none;
  uint32_t next_psn = 0;           // of request `sent`
  uint32_t responses_awaited = 0;  // READs and atomics in flight
  uint32_t rnr_tries = 0;          // how often request `rnr_number` found no receive WQE, without any progress
  uint64_t rnr_number = 0;
  int64_t pause = 0;  // ns: how long the last wait for a responder that is not ready was
};

class Transport;
struct RemotePath;
struct Datagrams;
struct ForeignQp;
// A handle of the program on an XRC_RECV queue pair.
struct QpOpening {
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
  ibv_qp_cap cap{};
  std::atomic<uint32_t> expected_target{
      UINT32_MAX};  // slot: whom the next request will visit, by all likelihood
  uint32_t sq_inline_stride = 0;
  bool signal_all = false;

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
  bool wakeup_asked = false;     // the peer wakes this process when it posts a receive
  bool drain_event_due = false;  // SQD: raise SQ_DRAINED when the last request is finished
  uint64_t sq_size = 0;
  uint64_t sq_posted = 0;
  uint64_t sq_next = 0;               // first request not finished
  std::atomic<uint64_t> sq_freed{0};  // slots below are free again
  int64_t give_up_at = 0;             // ns, CLOCK_MONOTONIC; INT64_MAX: never
  int64_t try_again_at = 0;           // ns; not before; 0: at any time
  Flight flight;
  Transport* transport = nullptr;  // how requests travel (requester/transport.h)
  std::vector<SendRequest> sq;        // requests in [sq_next, sq_posted), by number % sq.size()
  std::vector<ibv_sge> sq_sges;
  std::vector<std::byte> sq_inline;
  KnownRegion gathered, read_into;  // for requests on the short way
  Pacing pacing;
  std::shared_ptr<Datagrams> datagrams;      // UD (datagram.h)
  std::shared_ptr<RemotePath> remote;        // the peer is reached by frames (remote/remote_path.h)
  FastPath fast;
  RequesterContext requester;
  VendorError wait_reason{};

  // ---- seldom ----
  ibv_qp_attr attr{};  // what modify_qp was given last
  Cq* recv_cq = nullptr;
  uint64_t user_handle = 0;
  std::atomic<uint32_t> async_events{0};
  std::mutex modify_mutex;
  uint32_t responder_resources = 0;         // held of max_res_rd_atom; under modify_mutex
  std::atomic<bool> flush_receives{false};  // in ERR: receive WQEs are still to be flushed
  Xrcd* xrcd = nullptr;                     // XRC_RECV; then events go to all openings
  std::shared_ptr<ForeignQp> foreign;       // a handle on another process's XRC_RECV queue pair (xrc_openings.h)
  std::mutex openings_mutex;
  std::vector<QpOpening> openings;
  // Memory in the segment, to be given back.
  uint64_t rq_offset = 0;
  uint64_t rq_bytes = 0;
};

// Scatters what has landed in the receive slots and waits to be polled from `cq` (completion_queue.cc).
void scatter_landed(Cq& cq);

}  // namespace verbena
