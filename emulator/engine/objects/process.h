// SPDX-License-Identifier: BSD-2-Clause
//
// This process's adapter: one for all contexts that the process opens, from the first open to the last close.
// It holds the tables of the segment and the private objects behind them. EngineService drives it from above
// (service/engine_service.h).
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "adapter/memory_table.h"
#include "engine/objects/index_pool.h"
#include "engine/objects/memory_objects.h"
#include "engine/objects/object_table.h"
#include "engine/objects/quota.h"
#include "engine/objects/scheduler.h"
#include "engine/objects/shared_regions.h"
#include "fabric/hazards.h"
#include "fabric/node_membership.h"
#include "fabric/peer_adapter.h"

namespace verbena {

struct Cq;
struct Qp;
struct Srq;
struct Context;
class Network;
class EngineService;
class XrcSharedQps;

// What a call waits for others to let go of, as the log names it: "ibv_destroy_cq", "CQ", 5.
struct WaitingObject {
  const char* call;
  const char* kind;
  uint32_t number;
  bool is_hexadecimal = false;
};

class Process {
 public:
  // The modules above Process, whose code is not known here.
  struct Above {
    EngineService* service;
    XrcSharedQps* xrc_shared_qps;
    Scheduler::Progress progress;
    Network& (*begin_network)(EngineService& service);
  };
  explicit Process(const Above& above);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // True in two cases:
  // - in a forked child: everything of this object belongs to the parent;
  // - the device was closed while objects still existed.
  bool dead() const { return dead_.load(std::memory_order_relaxed); }
  void die() { dead_.store(true, std::memory_order_relaxed); }

  NodeMembership& membership() { return membership_; }
  PeerTable& peers() { return peers_; }
  PeerAdapter& self() { return *self_; }
  const std::shared_ptr<PeerAdapter>& shared_self() { return self_; }
  // Called once, when the process has joined the node.
  void meet_itself() { peers_.get(membership_, membership_.slot(), membership_.generation(), &self_); }
  const NodeDirectory& directory() const { return membership_.directory(); }
  HazardRecords hazards() const { return membership_.hazards(); }
  OwnSegment& segment() { return membership_.segment(); }
  const SegmentView& view() { return membership_.segment().view(); }
  MemoryTable& memory() { return memory_; }
  MemoryObjects& memory_objects() { return memory_objects_; }
  SharedRegions& shared_regions() { return shared_regions_; }
  Quota& quota() { return quota_; }
  IndexPool& qp_indices() { return qp_indices_; }
  IndexPool& cq_indices() { return cq_indices_; }
  IndexPool& srq_indices() { return srq_indices_; }
  Scheduler& scheduler() { return scheduler_; }

  // Private objects by table index; nullptr: none. Set and cleared under the CQ locks that polls hold.
  Qp* qp(uint32_t index) const { return qps_.get(index); }
  void set_qp(uint32_t index, Qp* qp) { qps_.set(index, qp); }
  Cq* cq(uint32_t index) const { return cqs_.get(index); }
  void set_cq(uint32_t index, Cq* cq) { cqs_.set(index, cq); }
  Srq* srq(uint32_t index) const { return srqs_.get(index); }
  void set_srq(uint32_t index, Srq* srq) { srqs_.set(index, srq); }

  // Held while the service thread uses QPs, CQs and SRQs by index: none is destroyed meanwhile.
  std::mutex& serving_mutex() { return serving_mutex_; }
  void forget_qp(uint32_t index);          // on return the service thread and the network do not touch the QP
  void qp_is_gone(uint32_t index);         // after forget_qp, when the index may be used again
  bool is_going(uint32_t qp_index) const;  // between the two calls; under serving_mutex
  void forget_cq(uint32_t index);
  void forget_srq(uint32_t index);

  // Calls callback(object) for each. Under serving_mutex, which for_each_cq takes itself.
  template <typename Callback>
  void for_each_qp(Callback&& callback) {
    const uint32_t limit = qp_indices_.ever_taken();
    for (uint32_t i = 0; i < limit; ++i)
      if (Qp* found = qp(i); found != nullptr && !is_going(i)) callback(*found);
  }
  template <typename Callback>
  void for_each_cq(Callback&& callback) {
    std::lock_guard lock(serving_mutex_);
    const uint32_t limit = cq_indices_.ever_taken();
    for (uint32_t i = 0; i < limit; ++i)
      if (Cq* found = cq(i); found != nullptr) callback(*found);
  }

  // Teardown: waits until every hazard guard on this adapter that began before the call is released. This
  // takes as long as a stopped peer stays stopped; after a second the log names `object` and that peer.
  void wait_for_hazards(const WaitingObject& object, uint32_t from_slot = kAnySlot);

  // Waits until no thread of this process is appending to `cq` on behalf of a queue pair it owns.
  void wait_for_own_producers(const Cq& cq);

  // ---- modules above --------------------------------------------------------------------------------

  // The processes that are reached by frames. nullptr: none, and the node has no network.
  Network* network() const { return network_.load(std::memory_order_acquire); }
  void set_network(Network* network) { network_.store(network, std::memory_order_release); }
  // The same; starts reaching the processes of this node if there is no network yet. Any thread. Throws
  // std::bad_alloc.
  Network& network_or_begin() { return above_.begin_network(*above_.service); }

  EngineService& service() { return *above_.service; }
  XrcSharedQps& xrc_shared_qps() { return *above_.xrc_shared_qps; }

  // Contexts, for events that concern a whole device. Guarded by contexts_mutex.
  std::mutex contexts_mutex;
  std::vector<Context*> contexts;
  std::vector<Context*> left_contexts;  // closed, and still used (Context::users)
  void delete_unused_contexts();        // of left_contexts

  // Messages through bounce rings (adapter/bounce_ring.h): own rings, and the longest message that this
  // process sends through those of others.
  std::atomic<uint32_t> bounce_rings{0};
  std::atomic<uint32_t> longest_bounced{0};

 private:
  const Above above_;
  NodeMembership membership_;
  PeerTable peers_;
  std::shared_ptr<PeerAdapter> self_;
  MemoryTable memory_;
  MemoryObjects memory_objects_;
  SharedRegions shared_regions_;
  IndexPool qp_indices_{kMaxQpsPerProcess};
  IndexPool cq_indices_{kMaxCqsPerProcess};
  Quota quota_;
  IndexPool srq_indices_{kMaxSrqsPerProcess};
  ObjectTable<Qp> qps_{kMaxQpsPerProcess};
  ObjectTable<Cq> cqs_{kMaxCqsPerProcess};
  ObjectTable<Srq> srqs_{kMaxSrqsPerProcess};
  std::atomic<bool> dead_{false};
  Scheduler scheduler_;
  std::atomic<Network*> network_{nullptr};
  std::mutex serving_mutex_;
  std::vector<uint32_t> gone_;  // indices of QPs that are being destroyed
};

}  // namespace verbena
