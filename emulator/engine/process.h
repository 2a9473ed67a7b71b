// SPDX-License-Identifier: BSD-2-Clause
//
// This process's adapter: one for all contexts that the process opens, from the first open to the last close.
// It owns the segment's tables and the list of queue pairs whose requests wait for something.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "adapter/memory_table.h"
#include "adapter/spin_lock.h"
#include "engine/device/quota.h"
#include "engine/memory/memory_objects.h"
#include "fabric/hazards.h"
#include "fabric/node_membership.h"
#include "fabric/peer_adapter.h"
#include "wire/connection_listener.h"

namespace verbena {

struct Cq;
struct Qp;
struct Srq;
struct Context;
struct QpLocation;
struct Connector;
class Remote;

// What has become of a queue pair that another process has made.
enum class OwnerStatus : uint8_t {
  kThere,
  kLater,  // its owner has ended, and nobody has taken it over yet
  kLost,
};

// Indices of a table in the segment: the one freed longest ago comes first.
class IndexPool {
 public:
  explicit IndexPool(uint32_t limit) : limit_(limit) {}
  bool take(uint32_t* index);  // false: all are in use
  void give(uint32_t index);

 private:
  std::mutex mutex_;
  std::vector<uint32_t> free_;
  size_t oldest_ = 0;
  uint32_t next_ = 0;
  uint32_t limit_;
};

class Process {
 public:
  // The adapter of this process, made at the first call; each needs one release(). errno as open_context.
  static int acquire(Process** out);
  // The last one leaves the node. If the program has objects left, which name this process until they are destroyed,
  // it stays where it is, dead; then this may take as long as a stopped peer stays stopped
  // (wait_for_hazards).
  void release();

  // True in a forked child: everything of this object belongs to the parent. And when the device was closed while
  // there were still objects.
  bool dead() const { return dead_.load(std::memory_order_relaxed); }

  NodeMembership& membership() { return membership_; }
  PeerTable& peers() { return peers_; }
  // open only on a node with a network
  wire::ConnectionListener& connection_listener() { return connection_listener_; }
  const NodeDirectory& directory() const { return membership_.directory(); }
  OwnSegment& segment() { return membership_.segment(); }
  const SegmentView& view() { return membership_.segment().view(); }
  MemoryTable& memory() { return memory_; }
  MemoryObjects& memory_objects() { return memory_objects_; }
  IndexPool& qp_indices() { return qp_indices_; }
  IndexPool& cq_indices() { return cq_indices_; }
  Quota& quota() { return quota_; }
  IndexPool& srq_indices() { return srq_indices_; }

  // Private objects by table index; nullptr: none. Set and cleared under the CQ locks that polls hold.
  Qp* qp(uint32_t index) const { return qps_[index].load(std::memory_order_acquire); }
  void set_qp(uint32_t index, Qp* qp) { qps_[index].store(qp, std::memory_order_release); }
  Cq* cq(uint32_t index) const { return cqs_[index].load(std::memory_order_acquire); }
  void set_cq(uint32_t index, Cq* cq) { cqs_[index].store(cq, std::memory_order_release); }
  Srq* srq(uint32_t index) const { return srqs_[index].load(std::memory_order_acquire); }
  void set_srq(uint32_t index, Srq* srq) { srqs_[index].store(srq, std::memory_order_release); }

  // Completion events that did not reach their channel's pipe. Any thread. False: some pipe is still full.
  bool reinject_lost_events();
  void owe_event(uint64_t user_handle);

  // Calls visit(cq) for each CQ; none is destroyed meanwhile.
  template <typename Callback>
  void for_each_cq(Callback&& callback) {
    std::lock_guard lock(doorbell_mutex_);
    const uint32_t limit = view().header().cq_high_water.load(std::memory_order_acquire);
    for (uint32_t i = 0; i < limit; ++i)
      if (Cq* found = cq(i); found != nullptr) callback(*found);
  }

  // Waits until every hazard guard on this adapter that began before is over (teardown; may take as long as a
  // stopped peer stays stopped, and then says so in the log).
  void wait_for_hazards(uint32_t from_slot = kAnySlot);

  // Waits until no thread of this process is in the middle of appending to `cq` as a queue pair's owner.
  void wait_for_own_producers(const Cq& cq);

  // Peers and the own process leave word here that some pending flag wants looking at.
  void ring_doorbell();

  PeerAdapter& self() { return *self_; }

  // What there is with processes that are reached by frames; nullptr: nobody is, and the node has no network.
  Remote* remote() const { return remote_now_.load(std::memory_order_acquire); }
  // Begins with other nodes: before the first queue pair is connected.
  void begin_remote(const Connector& caller);
  // Begins with those of this node if there is nothing yet. Any thread. Throws std::bad_alloc.
  Remote& remote_or_begin();
  void poll_remote(bool active);  // has_pending() stands for sockets, too

  // ---- requests that wait, and what comes from other nodes (progress.cc) ----
  void add_pending(Qp* qp);         // caller holds qp's send_lock
  void forget_qp(uint32_t index);   // on return the service thread does not touch it any more
  void qp_is_gone(uint32_t index);  // after forget_qp, when the index may be used again
  void forget_cq(uint32_t index);
  void forget_srq(uint32_t index);
  bool has_pending() const { return pending_count_.load(std::memory_order_relaxed) != 0; }
  void progress_from_poll();

  // ---- XRC_RECV queue pairs that several processes hold open (xrc_shared_qp.cc) ----
  int add_proxy(Qp* qp);  // ENOMEM
  void remove_proxy(Qp* qp);  // on return the service thread does not touch it any more
  int keep_orphaned(Qp* qp);  // it lives while others hold it. ENOMEM
  bool adopt_orphaned(Qp* qp);  // if it is one, it is none any more; false: it is ending
  std::vector<Qp*> take_xrc_qps_of(Context& context);  // made on it; unless another context of the device is there
  OwnerStatus locate_shared_qp(Qp& qp, QpLocation* out);  // where what `qp` stands for is now
  // fabric/control_rpc.h
  static size_t serve_request(void* self, const std::byte* request, size_t size, std::byte* reply,
                              Descriptor& passed);
  size_t serve_shared_qp_request(const std::byte* request, size_t size, std::byte* reply);

  // Calls `happened(context)` in the service thread whenever something has happened to a device of the node; what it
  // was is in the device's log. nullptr: no more, and on return it is not running.
  void watch_devices(void (*happened)(void*), void* context);

  // Contexts, for events that concern a whole device. Guarded by contexts_mutex.
  std::mutex contexts_mutex;
  std::vector<Context*> contexts;
  std::vector<Context*> left_contexts;  // closed, and still used (Context::users)
  void delete_unused_contexts();        // of left_contexts

 private:
  Process();
  ~Process();
  static int64_t service(void* self);
  int64_t serve();
  void serve_doorbell();
  void serve_device_events();             // device_events.cc
  void tell_device_watcher();              // device_events.cc
  void fail_context(Context& context);     // device_events.cc
  struct OrphanedQp {
    Qp* qp;
    bool ending;
  };
  int64_t serve_shared_qps();  // xrc_shared_qp.cc: when there is something to look at again, ns
  // Under shared_qp_mutex_ (xrc_succession.cc from find_again() on):
  OwnerStatus serve_proxy(Qp& qp);
  void raise_told_events(Qp& qp);
  OwnerStatus find_again(Qp& qp);
  OwnerStatus attach(Qp& qp, const QpnEntry& entry, uint32_t generation);
  OwnerStatus take_over(Qp& qp, const QpnEntry* entry);
  bool end_orphaned(OrphanedQp& orphaned);
  bool is_going(uint32_t qp_index) const;  // between forget_qp and qp_is_gone; under doorbell_mutex_
  int64_t progress_pending(bool from_service);
  void publish_pending();  // under pending_mutex_
  int64_t raise_moderated_events();  // when the next is due, ns; kEndOfTime: none
  static void before_fork();
  static void after_fork_in_parent();
  static void after_fork_in_child();

  NodeMembership membership_;
  PeerTable peers_;
  wire::ConnectionListener connection_listener_;
  std::shared_ptr<PeerAdapter> self_;
  std::unique_ptr<Remote> remote_;
  std::atomic<Remote*> remote_now_{nullptr};
  std::mutex begin_mutex_;
  MemoryTable memory_;
  MemoryObjects memory_objects_;
  IndexPool qp_indices_{kMaxQpsPerProcess};
  IndexPool cq_indices_{kMaxCqsPerProcess};
  Quota quota_;
  IndexPool srq_indices_{kMaxSrqsPerProcess};
  std::unique_ptr<std::atomic<Qp*>[]> qps_;
  std::unique_ptr<std::atomic<Cq*>[]> cqs_;
  std::unique_ptr<std::atomic<Srq*>[]> srqs_;
  std::atomic<bool> dead_{false};
  uint32_t references_ = 0;
  Process* next_left_ = nullptr;

  std::mutex pending_mutex_;  // held while requests are worked on from the list
  std::vector<Qp*> pending_;
  std::atomic<bool> polled_{false};  // since the service thread looked last
  std::atomic<uint32_t> pending_count_{0};  // of pending_, and kRemoteIsActive
  static constexpr uint32_t kRemoteIsActive = 1u << 31;
  std::mutex doorbell_mutex_;     // held while the service thread looks at QPs and CQs that called for it
  std::vector<uint32_t> gone_;  // indices of QPs that are being destroyed
  bool moderating_ = false;     // some CQ's event waits for its period to end
  bool flushing_ = false;       // some receive queue waits for a peer before it can be flushed

  std::mutex watcher_mutex_;
  void (*device_watcher_)(void*) = nullptr;
  void* device_watcher_context_ = nullptr;
  uint64_t device_events_told_ = 0;  // to the watcher

  int open_connection_listener();
  uint64_t count_objects() const;  // of all contexts
  std::atomic<bool> connection_listener_is_open_{false};  // for the service thread

  std::mutex shared_qp_mutex_;
  std::vector<Qp*> proxies_;
  std::vector<OrphanedQp> orphaned_;

  std::atomic<bool> service_awake_{false};
  int idle_ticks_ = 0;
};

}  // namespace verbena
