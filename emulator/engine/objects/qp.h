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
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "adapter/known_region.h"
#include "adapter/layout.h"
#include "adapter/locks.h"
#include "adapter/receive_ring.h"
#include "engine/objects/context_use.h"
#include "fabric/hazard_guard.h"

namespace verbena {

class OwnRequests;
class Process;
class Transport;
enum class VendorError : uint32_t;
struct Context;
struct Cq;
struct Datagrams;
struct FastPath;
struct Flight;
struct FrameSender;
struct Pacing;
struct Pd;
struct Qp;
struct QpParts;
struct RequesterContext;
struct RwqTable;
struct SendRequest;
struct Srq;
struct Xrcd;

enum class Waiting : uint8_t {
  kNothing,
  kReceive,     // RNR: the peer has no receive WQE posted
  kTransport,   // the peer does not reply
  kAtomicLock,  // another requester is in the middle of an atomic on the same word; or a key is still in use
  kChunk,       // the next chunk of a long transfer goes when polled
};

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
//
// The members that are references lie in one block, QpParts (qp.cc). A file that uses such a part includes
// its header. The others are spared what these headers include.
struct Qp {
  Qp();  // throws std::bad_alloc
  ~Qp();
  Qp(const Qp&) = delete;
  Qp& operator=(const Qp&) = delete;

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
  std::atomic<uint32_t> expected_target{UINT32_MAX};  // slot that the next request will probably access
  // The second line.
  HazardRecords hazards;  // of `process`
  ibv_qp_cap cap{};
  uint32_t sq_inline_stride = 0;
  uint64_t sq_size = 0;  // requests of the program
  const std::unique_ptr<QpParts> parts;
  bool signal_all = false;

  // ---- receive queue, under recv_lock ----
  alignas(kCacheLine) BiasedLock recv_lock;
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
  uint64_t sq_posted = 0;
  uint64_t sq_next = 0;               // first request not finished
  std::atomic<uint64_t> sq_freed{0};  // slots below are free
  Transport* transport = nullptr;     // how requests travel (objects/transport.h)
  FastPath& fast;
  RequesterContext& requester;
  Flight& flight;
  // The second line.
  Pacing& pacing;
  int64_t give_up_at = 0;    // ns, CLOCK_MONOTONIC; INT64_MAX: never
  int64_t try_again_at = 0;  // ns: not before; 0: at any time
  VendorError wait_reason{};
  std::shared_ptr<Datagrams> datagrams;   // UD (datagram.h)
  std::shared_ptr<FrameSender> frames;    // RAW_PACKET (ethernet/frame_sender.h)
  std::shared_ptr<Transport> frame_path;  // `transport`, if the peer is reached by frames (network.h)
  // Requests that are kept.
  std::vector<SendRequest> sq;  // requests in [sq_next, sq_posted), by number % sq.size()
  std::vector<ibv_sge> sq_sges;
  std::vector<std::byte> sq_inline;

  // ---- rarely used ----
  std::unique_ptr<OwnRequests> own_requests;  // under send_lock; nullptr: it posts none
  ibv_qp_attr attr{};                         // what modify_qp was given last
  Cq* recv_cq = nullptr;
  uint64_t user_handle = 0;
  std::atomic<uint32_t> async_events{0};
  std::mutex modify_mutex;
  uint32_t responder_resources = 0;         // reserved out of max_res_rd_atom; under modify_mutex
  std::atomic<bool> flush_receives{false};  // in ERR: receive WQEs are still to be flushed
  std::atomic<uint32_t> flows{0};           // rules that give frames to the queue pair
  RwqTable* rss = nullptr;                  // spreads its frames over these (ibv_create_qp_ex(3)); or none
  bool is_work_queue = false;               // the program knows it as a work queue (ibv_create_wq(3))
  Xrcd* xrcd = nullptr;                     // XRC_RECV; then events go to all handles
  std::unique_ptr<QpProxy> proxy;           // set if another process owns the queue pair
  std::mutex handles_mutex;
  std::vector<QpHandle> handles;
  // Memory in the segment, freed with the queue pair.
  uint64_t rq_offset = 0;
  uint64_t rq_bytes = 0;
  std::atomic<std::byte*> bounce_ring{nullptr};  // adapter/bounce_ring.h; nullptr: none has been asked for
};

// True: the verb returns EIO (Process::dead()).
bool is_dead(const Qp& qp);

}  // namespace verbena
