// SPDX-License-Identifier: BSD-2-Clause
//
// Progress over the sockets. One thread at a time has the progress lock: a thread of the program that polls
// takes it if it is free; otherwise the service thread takes it (progress_policy.h). The service thread
// sleeps on the sockets as well.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "engine/remote/connections.h"
#include "engine/remote/deadlines.h"
#include "engine/remote/frame_receiver.h"
#include "engine/remote/progress_policy.h"

namespace verbena {

class RemoteProgress {
 public:
  RemoteProgress(Process& process, Connections& connections, FrameReceiver& receiver, Deadlines& deadlines);
  ~RemoteProgress();
  RemoteProgress(const RemoteProgress&) = delete;
  RemoteProgress& operator=(const RemoteProgress&) = delete;

  // The progress lock. Before Qp::send_lock.
  std::timed_mutex& mutex() { return mutex_; }

  // Becomes readable when something comes that the service thread is to receive. -1: no descriptors were
  // left.
  int descriptor() const { return outer_; }

  // Network::drive_from_poll, before_sleep, receive_posted
  void drive_from_poll();
  void before_sleep();
  void receive_posted();

  // What the service thread does each time it runs. Returns when to call again, ns.
  int64_t serve();

  // Sends what has gathered. Any thread.
  void flush_all();
  // The same before this process leaves the node: datagrams that wait for a connection go without it.
  void flush_last();
  // The same, unless a thread has the progress lock: that thread may be the one that calls exit(3).
  void flush_at_exit();

  // Receives from this peer all that is there. The caller holds the lock.
  void drain(RemotePeer& peer) { drive_one(peer, true); }

 private:
  bool drive(bool from_service);
  bool drive_one(RemotePeer& peer, bool from_service);
  void ask_which_are_ready();
  void tell_of_receives();
  bool wait_for_service(std::unique_lock<std::timed_mutex>& lock);
  bool awaits_rest() const;
  void receive_rest();
  void arm(bool armed);
  bool is_anything_unread() const;
  void flush_peers();

  Process& process_;
  Connections& connections_;
  FrameReceiver& receiver_;
  Deadlines& deadlines_;
  int outer_ = -1;  // holds the epoll descriptor of the sockets while the service thread waits for them

  // Any thread.
  std::timed_mutex mutex_;
  std::atomic<bool> receives_posted_{false};
  std::atomic<bool> polled_{false};             // the program has polled since the service thread looked last
  std::atomic<bool> asleep_{false};             // ServicePlan::asleep
  std::atomic<bool> serving_{false};            // the service thread has the lock
  std::atomic<int> flushing_{0};                // threads that wait for the lock, to send what has gathered
  std::atomic<uint32_t> polls_in_vain_{0};      // in a row: the service thread had the lock
  std::atomic<int> polled_in_a_row_{0};         // ServiceLook::polled_in_a_row of the last look
  std::atomic<uint32_t> received_by_polls_{0};  // polls that have received something; written under mutex_

  EmptyPolls empty_polls_;  // under mutex_

  // The service thread's. armed_ as well under mutex_, before that thread runs.
  bool armed_ = false;
  bool was_unread_ = false;
  int64_t looked_at_ = 0;  // ns
  PollShare poll_share_;
};

}  // namespace verbena
