// SPDX-License-Identifier: BSD-2-Clause
//
// What drives the adapter of this process: its service thread, the network, the connection listener, and the handles on
// queue pairs of other processes. One per process that has a device open.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/objects/process.h"
#include "engine/remote/remote.h"
#include "engine/xrc/xrc_shared_qps.h"
#include "wire/connection_listener.h"

namespace verbena {

class EngineService {
 public:
  // The adapter of this process, made at the first call; each needs one release(). errno as open_context.
  static int acquire(Process** out);
  // The last one leaves the node. If the program has objects left, which name this process until they are destroyed, it
  // stays where it is, dead; then this may take as long as a stopped peer stays stopped
  // (Process::wait_for_hazards).
  static void release(Process& process);

  // open only on a node with a network
  wire::ConnectionListener& connection_listener() { return connection_listener_; }

  // Begins with other nodes: before the first queue pair is connected.
  void begin_remote(const Connector& caller);
  // Begins with the processes of this node that are reached by frames, if there is nothing yet. Any thread. Throws
  // std::bad_alloc.
  Remote& remote_or_begin();

  // Calls `happened(context)` in the service thread whenever something has happened to a device of the node; what it was is
  // in the device's log. nullptr: no more, and on return it is not running.
  void watch_devices(void (*happened)(void*), void* context);

 private:
  EngineService();
  ~EngineService();
  int enter(const char* node);
  int open_connection_listener();
  void leave();
  bool has_objects() const;
  static size_t reply(void* self, const std::byte* request, size_t size, std::byte* reply, Descriptor& passed);
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
  void serve_all();
  void serve_device_events();
  void tell_device_watcher();
  void fail_context(Context& context);

  Process process_;
  XrcSharedQps xrc_shared_qps_{process_};
  wire::ConnectionListener connection_listener_;
  std::unique_ptr<Remote> remote_;
  std::mutex begin_mutex_;
  std::atomic<bool> connection_listener_is_open_{false};  // for the service thread
  uint32_t references_ = 0;
  EngineService* next_left_ = nullptr;
  bool moderating_ = false;  // some CQ's event waits for its period to end
  std::vector<uint32_t> flushing_;  // QPs whose receive queue waits for a peer before it can be flushed

  std::mutex watcher_mutex_;
  void (*device_watcher_)(void*) = nullptr;
  void* device_watcher_context_ = nullptr;
  uint64_t device_events_told_ = 0;  // to the watcher

  friend struct EngineServiceAtExit;
};

}  // namespace verbena
