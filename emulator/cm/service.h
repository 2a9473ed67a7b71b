// SPDX-License-Identifier: BSD-2-Clause
//
// The connection manager in this process: its node membership, the lock for ids, connections and links, and
// the thread for messages, alarms and events.
//
// Locking: `mutex` guards everything here and everything of an Id, a Connection, the Links. It is held while
// messages are sent and received, which never blocks (link.h), and never while a handler runs. The thread
// alone raises events, in the order in which they were queued.
//
// After fork(2) the child's copy is dead. Its descriptors are closed, so that peers see the parent's end;
// nothing else of it is touched.
#pragma once

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "cm/alarm.h"
#include "cm/cm.h"
#include "cm/connection_table.h"
#include "cm/id_table.h"
#include "cm/link.h"
#include "engine/roce_transport/roce_network.h"
#include "engine/service/engine_service.h"
#include "wire/connection_listener.h"

namespace verbena::cm {

enum class Stage : uint8_t;  // id.h

// An event on its way to a handler. With a transition (from != to) it is raised only if the id is still in
// `from`, and moves it to `to`: cma.c's cma_work.
struct PendingEvent {
  Event event;
  bool has_transition;
  Stage from, to;
};

class Service final : public Watcher, public LinkUser, public Wire, public ArrivalHandler {
 public:
  static int acquire(Service** out);
  void release();
  bool dead() const { return dead_.load(std::memory_order_relaxed); }

  // Locks the service. Its destructor wakes the thread if there is work for it.
  class Guard {
   public:
    explicit Guard(Service& service) : service_(service) { service_.mutex_.lock(); }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    ~Guard() {
      const bool wake = service_.owes_work();
      service_.mutex_.unlock();
      if (wake) service_.wake();
    }

   private:
    Service& service_;
  };

  // ---- under the lock ----
  void raise(const PendingEvent& pending) { pending_.push_back(pending); }
  // Drops the events of an id that ends, ends the requests that no handler has seen yet, and waits for the
  // id's handler.
  void quiet(Id* id);
  void quiet_join(Id* id, void* join);  // likewise of one join
  AlarmClock& clock() { return clock_; }
  ConnectionTable& connections() { return connections_; }
  const IdTable& table() const { return table_; }
  const DeviceTable& devices() const { return process_->directory().devices(); }
  const DeviceEventLog& events_of(uint32_t device) const { return process_->directory().events(device); }
  Peer self() const { return {process_->membership().slot(), process_->membership().generation()}; }
  void add(Id* id);  // gives it its number
  void remove(Id* id);
  Id* find(uint32_t number) const;
  const std::unordered_map<uint32_t, Id*>& ids() const { return ids_; }
  // The process of the node that listens for the request. If there is none: this process, which then refuses
  // the request.
  Peer receiver_of(PortSpace space, const Address& destination, uint32_t device) const;
  // A peer for the process that listens for the service at an address of another node. Asks that node.
  Peer remote_receiver_of(uint64_t service, const Address& source, const Address& destination);

  // Not nullptr: other nodes are reached by MADs.
  RoceNetwork* roce() const { return process_->service().roce(); }

  // ---- pipes (service_thread.cc) ----
  int watch_pipe(int fd, void (*gone)(void*), void* context);
  void unwatch_pipe(int fd);

  void call_later(uint32_t milliseconds, void (*due)(void*), void* context);

  // ---- Wire ----
  void send(const Peer& peer, const Message& message) override;

 private:
  friend class Guard;
  friend struct ServiceAtExit;
  explicit Service(Process* process);
  ~Service();
  int start();
  static void* thread_main(void* self);
  void run();
  int sleep_ms();
  void handle(uint64_t token);
  void settle(std::unique_lock<std::mutex>& lock);
  void deliver(std::unique_lock<std::mutex>& lock);
  void serve_devices();  // devices.cc
  void take_mads();      // mads.cc
  void send_mad(const Message& message);
  void notify_of_exit();
  static void mad_arrived(void* self, const Mad& mad);
  bool owes_work() const;
  void wake() const;
  static void before_fork();
  static void after_fork_in_parent();
  static void after_fork_in_child();

  // ---- Watcher, LinkUser, ArrivalHandler ----
  void watch(int fd, uint64_t token, bool for_room) override;
  void forget(int fd) override;
  void frame_arrived(const Peer& peer, std::span<const uint8_t> frame) override;
  void peer_lost(const Peer& peer) override { connections_.lose(peer); }
  Arrival arrived(std::unique_ptr<Connection>& connection, const Message& message) override;
  void peer_found(const Peer& before, const Peer& peer) override { connections_.rename(before, peer); }
  void nobody_there(const Peer& peer, std::span<const uint8_t> frame) override;
  bool is_of_interest(const Peer& peer) const override { return connections_.has_connections_with(peer); }

  // Called in the connection listener's thread (remote.cc).
  struct ConnectionEvents final : wire::ConnectionObserver {
    explicit ConnectionEvents(Service& of) : service(of) {}
    void arrived(const wire::EstablishedConnection& arrived) override;
    void failed(uint64_t request_id, wire::Refusal refusal) override;
    Service& service;
  };

  struct Pipe {
    void (*gone)(void*);
    void* context;
  };
  struct LaterCall {
    void (*due)(void*);
    void* context;
  };

  Process* process_;
  std::mutex mutex_;
  std::condition_variable handled_;
  AlarmClock clock_;
  Links links_;
  ConnectionTable connections_;
  ConnectionEvents connection_events_{*this};
  std::mutex mads_mutex_;  // the last of all locks
  std::deque<Mad> mads_;   // that have come
  IdTable table_;
  std::unordered_map<uint32_t, Id*> ids_;
  uint32_t next_number_ = 1;
  std::deque<PendingEvent> pending_;
  Id* handling_ = nullptr;           // the id whose handler runs now
  Id* handling_listener_ = nullptr;  // and where the request came from
  std::map<int, Pipe> pipes_;
  std::deque<int> gone_pipes_;
  int handling_pipe_ = -1;
  LaterCall later_call_{};
  Alarm later_alarm_{clock_, [](void* self) { static_cast<Service*>(self)->later_call_is_due_ = true; }, this};
  bool later_call_is_due_ = false;
  int epoll_fd_ = -1, wake_fd_ = -1;
  pthread_t thread_{};
  int64_t asleep_until_ = INT64_MIN;  // INT64_MIN: awake
  uint64_t device_events_seen_ = 0;
  bool stop_ = false;
  bool ends_itself_ = false;  // released by its own thread
  std::atomic<bool> dead_{false};
  uint32_t references_ = 0;
};

// The slot of the process that listens for the service at an address of the node: the most specific listener.
bool find_listening_slot(const NodeDirectory& directory, const std::string& node, const wire::NetAddress& to,
                         uint64_t service, uint32_t* slot);

}  // namespace verbena::cm
