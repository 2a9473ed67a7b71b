// SPDX-License-Identifier: BSD-2-Clause
//
// The membership of this process in its node: its slot, its segment, and the service thread. The thread
// - holds the slot's robust lock while the process is a member,
// - serves the process's socket (service_socket.h), and so passes the segment to peers that ask for it,
// - does the work that no call of the program drives (retries, asynchronous events),
// - every 30 seconds looks whether the process's socket still has its name (about 10 us), and mends the
// node's
//   folder if a cleaner of old files has deleted it.
// Otherwise it sleeps in poll(2).
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "adapter/segment.h"
#include "fabric/control_rpc.h"
#include "fabric/fifo.h"
#include "fabric/node_directory.h"
#include "fabric/service_socket.h"

namespace verbena {

// Called in the service thread when it is kicked, and when the time that it asked for has come. Returns after
// how many nanoseconds it must be called again at the latest; < 0: not before the next kick.
using ServiceWork = int64_t (*)(void* context);

class NodeMembership {
 public:
  NodeMembership() = default;
  NodeMembership(const NodeMembership&) = delete;
  NodeMembership& operator=(const NodeMembership&) = delete;

  // Takes a slot on `node`, which then stays, and starts the thread. ENOENT: no such node (any more); EPERM:
  // another user's node, or the process runs with another user's rights (AT_SECURE); EPROTO: created by
  // another version; EMFILE: all slots are taken; ENOMEM; EAGAIN: no thread.
  int enter(const std::string& node, ServiceWork work, void* context);

  // Before enter(): sets the handler of other processes' requests, which runs in the service thread. Without
  // a handler requests are not served.
  void serve_requests_by(ServeRequest handler, void* context);

  // The socket through which other processes reach this one. Its handlers run in the service thread.
  ServiceSocket& services() { return services_; }

  // watch(): the service thread also does its work whenever `descriptor` (for example of epoll(7)) is
  // readable; at most kMaxWatched at once. unwatch(): the descriptor may still be checked once more
  // afterwards; ENOENT is no error. Any thread.
  static constexpr uint32_t kMaxWatched = 4;
  int watch(int descriptor);  // ENOSPC
  void unwatch(int descriptor);

  // Stops the thread and gives the slot back. The node goes with its last process (node_removal.h). Not in a
  // forked child.
  void leave();

  // The program exits: removes the node if this process, which may still be a member, was the last to use it.
  void retire_node_at_exit();

  // Makes a FIFO in the slot's folder; also makes the folder if somebody has deleted it. errno.
  int make_fifo(FifoEnd& fifo, const std::string& name) const;
  // Removes its name. Peers then close their ends.
  void remove_fifo(const std::string& name) const;

  const NodeDirectory& directory() const { return directory_; }
  const std::string& node() const { return node_; }
  const std::string& folder() const { return folder_; }  // this slot's
  uint32_t slot() const { return slot_; }
  uint32_t generation() const { return generation_; }
  uint32_t worker() const { return Worker{slot_, generation_}.pack(); }
  HazardRecords hazards() const { return directory_.hazards(slot_); }  // of this process's threads
  OwnSegment& segment() { return segment_; }
  int memory_fd() const { return memory_fd_; }  // this process's /proc/self/mem, or -1

  // Wakes the service thread. Any thread of this process; peers use the FIFO `kick`.
  void kick();

 private:
  static void* thread_main(void* self);
  void run();
  int join();
  void mend_names();
  int take_slot(RobustLock& lock);
  int prepare();
  void serve();
  void give_back();

  std::string node_;
  std::string folder_;
  NodeDirectory directory_;
  OwnSegment segment_;
  KeptDescriptor shelter_;  // the node's folder, locked: systemd-tmpfiles(8) spares what is in it
  int64_t next_look_ = 0;   // at the names
  FifoEnd kick_;
  ServiceWork work_ = nullptr;
  void* context_ = nullptr;
  RequestHandler request_handler_;
  ServiceSocket services_;
  uint32_t slot_ = 0;
  uint32_t generation_ = 0;
  int memory_fd_ = -1;
  pthread_t thread_{};
  std::atomic<int> watched_[kMaxWatched] = {-1, -1, -1, -1};
  std::atomic<bool> stop_{false};
  std::atomic<int> started_{-1};  // -1: not yet; else the errno of starting
};

// Frees the slots of dead holders: their QP numbers, folders and hazard records. Cheap when there are none.
// `lock` holds nothing before and after.
void reclaim_dead_slots(const NodeDirectory& directory, const std::string& node, RobustLock& lock);

}  // namespace verbena
