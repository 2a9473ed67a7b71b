// SPDX-License-Identifier: BSD-2-Clause
//
// This process on its node: the slot it holds, its segment, and the service thread. The thread holds the
// slot's robust mutex for as long as the process lives here, hands the segment to peers that ask, and does
// the work that no call of the program drives (retries, asynchronous events). It sleeps in poll(2) otherwise.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "adapter/segment.h"
#include "fabric/control_rpc.h"
#include "fabric/fifo.h"
#include "fabric/node_directory.h"

namespace verbena {

// Done in the service thread whenever it is kicked or the time it asked for has come. Answers in how many
// nanoseconds it wants to be called again at the latest; < 0: not before the next kick.
using ServiceWork = int64_t (*)(void* context);

class NodeMembership {
 public:
  NodeMembership() = default;
  NodeMembership(const NodeMembership&) = delete;
  NodeMembership& operator=(const NodeMembership&) = delete;

  // Takes a slot on `node` and starts the thread. ENOENT: no such node; EPROTO: made by another version;
  // EMFILE: all slots are taken; ENOMEM; EAGAIN: no thread.
  int enter(const std::string& node, ServiceWork work, void* context);

  // Before enter(): who answers other processes' questions, in the service thread. Without one nobody does.
  void serve_requests_by(ServeRequest handler, void* context) {
    serve_request_ = handler;
    serve_context_ = context;
  }

  // The service thread does its work as well whenever `descriptor` (epoll(7), say) is readable; at most
  // kMaxWatched at once. Any thread. unwatch: afterwards it may still be looked at once more; ENOENT is no
  // error.
  static constexpr uint32_t kMaxWatched = 4;
  int watch(int descriptor);  // ENOSPC
  void unwatch(int descriptor);

  // Stops the thread and gives the slot back. Not in a forked child.
  void leave();

  const NodeDirectory& directory() const { return directory_; }
  const std::string& node() const { return node_; }
  const std::string& folder() const { return folder_; }  // this slot's
  uint32_t slot() const { return slot_; }
  uint32_t generation() const { return generation_; }
  uint32_t worker() const { return Worker{slot_, generation_}.pack(); }
  OwnSegment& segment() { return segment_; }
  int memory_fd() const { return memory_fd_; }  // this process's /proc/self/mem, or -1

  // Wakes the service thread. Any thread of any process may, peers through the FIFO `kick`.
  void kick();

 private:
  static void* thread_main(void* self);
  void run();
  int take_slot();
  int prepare();
  void serve();
  void give_back();

  std::string node_;
  std::string folder_;
  NodeDirectory directory_;
  OwnSegment segment_;
  FifoEnd kick_;
  ServiceWork work_ = nullptr;
  void* context_ = nullptr;
  ServeRequest serve_request_ = nullptr;
  void* serve_context_ = nullptr;
  uint32_t slot_ = 0;
  uint32_t generation_ = 0;
  int memory_fd_ = -1;
  int listener_ = -1;
  int request_listener_ = -1;
  pthread_t thread_{};
  std::atomic<int> watched_[kMaxWatched] = {-1, -1, -1, -1};
  std::atomic<bool> stop_{false};
  std::atomic<int> started_{-1};  // -1: not yet; else the errno of starting
};

// Frees the slots whose holders died: their QP numbers, folder and hazards. Cheap when there are none.
void reclaim_dead_slots(const NodeDirectory& directory, const std::string& node);

}  // namespace verbena
