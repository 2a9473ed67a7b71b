// SPDX-License-Identifier: BSD-2-Clause
//
// What drives the adapter of this process: its service thread, the network, the connection listener, and the
// shared XRC_RECV queue pairs. One per process that has a device open.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/objects/process.h"
#include "engine/remote/remote.h"
#include "engine/roce_transport/roce_network.h"
#include "engine/service/recording.h"
#include "engine/xrc/xrc_shared_qps.h"
#include "wire/connection_listener.h"

namespace verbena {

class EngineService {
 public:
  // The adapter of this process, made at the first call. Each call needs one release(). errno as
  // open_context.
  static int acquire(Process** out);
  // The last call leaves the node. Objects that the program has not destroyed still refer to `process`, which
  // then stays, dead. In this case the call may take as long as a stopped peer stays stopped
  // (Process::wait_for_hazards).
  static void release(Process& process);

  // Open only on a node with a network.
  wire::ConnectionListener& connection_listener() { return connection_listener_; }

  // The network of a node with RoCE v2; nullptr: the node has none.
  RoceNetwork* roce() { return roce_is_open_.load(std::memory_order_acquire) ? roce_.get() : nullptr; }

  // Starts engine/remote with a connector to other nodes. Called before the first queue pair is connected.
  void begin_remote(const Connector& caller);
  // engine/remote; starts it, for processes of this node alone, if there is none yet. Any thread. Throws
  // std::bad_alloc.
  Remote& remote_or_begin();

  // The program is about to change what is mapped in the range (program_memory.h), and has done so. Nothing,
  // if no device is open. Neither takes a lock.
  static void memory_changes(uint64_t address, uint64_t length);
  static void memory_changed(uint64_t address, uint64_t length);

  // Calls `happened(context)` in the service thread after each event of a device of the node. The event is in
  // the device's log. nullptr: no more calls; on return none is running.
  void watch_devices(void (*happened)(void*), void* context);

 private:
  EngineService();
  ~EngineService();
  int enter(const char* node);
  int open_network();
  int open_connection_listener();
  int open_roce();
  void leave();
  bool has_objects() const;
  static size_t reply(void* self, const std::byte* request, size_t size, std::byte* reply,
                      Descriptor& passed);
  static void before_fork();
  static void after_fork_in_parent();
  static void after_fork_in_child();

  // ---- the service thread ----
  static int64_t serve_thread(void* self);
  int64_t serve();
  void serve_doorbell();
  void serve_cq(uint32_t index);
  void serve_srq(uint32_t index);
  void serve_qp(uint32_t index);
  void serve_device_events();
  void tell_device_watcher();
  void fail_context(Context& context);

  Process process_;
  XrcSharedQps xrc_shared_qps_{process_};
  wire::ConnectionListener connection_listener_;
  std::unique_ptr<Remote> remote_;
  std::atomic<Remote*> begun_remote_{nullptr};  // `remote_`, once it has begun
  std::unique_ptr<RoceNetwork> roce_;           // a node with RoCE v2 only
  std::mutex begin_mutex_;
  std::atomic<bool> roce_is_open_{false};
  std::atomic<bool> connection_listener_is_open_{false};  // the service thread may serve it
  Recording recording_;
  uint32_t references_ = 0;
  EngineService* next_left_ = nullptr;
  std::vector<uint32_t> moderated_;  // CQs whose event waits for the end of its period
  std::vector<uint32_t> flushing_;   // QPs whose receive queue cannot be flushed yet: a peer uses it

  std::mutex watcher_mutex_;
  void (*device_watcher_)(void*) = nullptr;
  void* device_watcher_context_ = nullptr;
  uint64_t device_events_told_ = 0;  // reported to the watcher

  friend struct EngineServiceAtExit;
};

}  // namespace verbena
