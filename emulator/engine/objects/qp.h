// SPDX-License-Identifier: BSD-2-Clause
//
// The process-private half of a queue pair. The half that peers see lies in the segment (adapter/layout.h).
//
// Lock order of one thread:
//   Qp::modify_mutex > Qp::send_lock > Qp::recv_lock > Cq::lock > Context::events_mutex
// None is held while waiting for hazards of peers, except modify_mutex.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "adapter/memory_table.h"
#include "adapter/receive_ring.h"
#include "adapter/spin_lock.h"
#include "engine/objects/context_use.h"
#include "engine/objects/requester_context.h"
#include "engine/objects/send_request.h"
#include "engine/rules/pacing.h"
#include "engine/rules/vendor_error.h"

namespace verbena {

class Process;
struct Context;
struct Cq;
struct Pd;
struct Qp;
struct Srq;
struct Xrcd;

enum class Waiting : uint8_t {
  kNothing,
  kReceive,    // RNR: the peer has no receive WQE posted
  kTransport,  // the peer does not reply
  kAtomicLock,  // another requester is in the middle of an atomic on the same word; or a key is still in use
  kChunk,      // the next chunk of a long transfer goes when polled
};

// What requests on the fast path compare, and what they cache about the peer (fast_path.h).
struct FastPath {
  // PeerPath::responder_state when the rest was cached; 0: the fast path is closed.
  uint64_t responder_state = 0;
  uint32_t small_size = 0;  // SENDs of up to so many bytes may take the fast path (small_send.h)
  bool rdma = false;        // WRITEs and READs may (small_rdma.h)
  KnownRegion written, read;  // of the peer's
};

// How far the requests given to the transport have come. All are running numbers of the queue pair. Requests
// below sq_next are finished; [sq_next, sent) are in flight.
struct Flight {
  uint64_t sent = 0;          // the first request that is not completely sent
  uint64_t begun = 0;         // the first request of which a hardware adapter would have sent nothing yet
  uint64_t acknowledged = 0;  // requests below have been carried out, except for responses on their way
  uint64_t refused_at = 0;    // 1 + number: refused for `refusal`, once those before it are finished
  VendorError refusal = VendorError::none;
  uint32_t next_psn = 0;           // of request `sent`
  uint32_t responses_awaited = 0;  // READs and atomics in flight
  uint32_t rnr_tries = 0;          // how often request `rnr_number` found no receive WQE, without progress
  uint64_t rnr_number = 0;
  int64_t pause = 0;  // ns: length of the last wait for a responder that was not ready
};

class Transport;
struct Datagrams;
// The proxy of a queue pair that another process owns (XRC_RECV, ibv_open_qp(3)): what the verbs call on it.
class QpProxy {
 public:
  virtual int modify(Qp& qp, const ibv_qp_attr& attr, int mask) = 0;
  virtual int query(Qp& qp, ibv_qp_attr* attr, ibv_qp_init_attr* init) = 0;
  virtual ~QpProxy() = default;
};

// A handle of the program on an XRC_RECV queue pair.
struct QpHandle {
  Context* context;
  Xrcd* xrcd;
  uint64_t user_handle;
  uint32_t async_events;
};

// Layout: a program may use many queue pairs in turn, so one message often misses the nearest cache. Fields
// are grouped by the code that uses them. No two groups share a cache line.
struct Qp {
  // ---- read with each request and completion; changed by verbs off the data path ----
  alignas(kCacheLine) Process* process = nullptr;
  SharedQp* shared = nullptr;
  ContextUse context;
  Cq* send_cq = nullptr;
  Pd* pd = nullptr;
  Srq* srq = nullptr;  // receives come from here; the queue below is then not used
  uint32_t index = 0;
  ibv_qp_type type = IBV_QPT_RC;
  std::atomic<ibv_qp_state> state{IBV_QPS_RESET};
  ibv_qp_cap cap{};
  std::atomic<uint32_t> expected_target{
      UINT32_MAX};  // slot that the next request will probably access
  uint32_t sq_inline_stride = 0;
  bool signal_all = false;

  // ---- receive queue, under recv_lock ----
  alignas(kCacheLine) SpinLock recv_lock;
  uint64_t rq_posted = 0;
  std::atomic<uint64_t> rq_freed{0};  // slots below are free: their completions were polled
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
  std::atomic<uint64_t> sq_freed{0};  // slots below are free
  int64_t give_up_at = 0;             // ns, CLOCK_MONOTONIC; INT64_MAX: never
  int64_t try_again_at = 0;           // ns: not before; 0: at any time
  Flight flight;
  Transport* transport = nullptr;  // how requests travel (objects/transport.h)
  std::vector<SendRequest> sq;        // requests in [sq_next, sq_posted), by number % sq.size()
  std::vector<ibv_sge> sq_sges;
  std::vector<std::byte> sq_inline;
  KnownRegion gathered, read_into;  // for requests on the fast path
  Pacing pacing;
  std::shared_ptr<Datagrams> datagrams;      // UD (datagram.h)
  std::shared_ptr<Transport> frame_path;     // `transport`, if the peer is reached by frames (network.h)
  FastPath fast;
  RequesterContext requester;
  VendorError wait_reason{};

  // ---- rarely used ----
  ibv_qp_attr attr{};  // what modify_qp was given last
  Cq* recv_cq = nullptr;
  uint64_t user_handle = 0;
  std::atomic<uint32_t> async_events{0};
  std::mutex modify_mutex;
  uint32_t responder_resources = 0;         // reserved out of max_res_rd_atom; under modify_mutex
  std::atomic<bool> flush_receives{false};  // in ERR: receive WQEs are still to be flushed
  Xrcd* xrcd = nullptr;                     // XRC_RECV; then events go to all handles
  std::unique_ptr<QpProxy> proxy;           // set if another process owns the queue pair
  std::mutex handles_mutex;
  std::vector<QpHandle> handles;
  // Memory in the segment, freed with the queue pair.
  uint64_t rq_offset = 0;
  uint64_t rq_bytes = 0;
};

}  // namespace verbena
