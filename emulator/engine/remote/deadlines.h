// SPDX-License-Identifier: BSD-2-Clause
//
// Timeouts of requests that were sent as frames. The service thread checks them every 1 to 10 ms while
// something is in flight, without being woken. It also comes again while something lingers.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace verbena {

class NodeMembership;
struct Qp;

class Deadlines {
 public:
  explicit Deadlines(NodeMembership& membership) : membership_(membership) {}

  // The queue pair has something in flight. Any thread that holds its send_lock.
  void watch(Qp& qp);
  // On return the queue pair is not touched any more. The caller does not hold its send_lock.
  void forget(Qp& qp);

  // Something waits for the next poll of the program, which may not come. Any thread.
  void note_lingering();
  // Has something lingered since the last call?
  bool take_lingering() { return lingers_.exchange(false, std::memory_order_relaxed); }

  // Does the service thread come again soon?
  bool is_ticking() const { return ticking_.load(std::memory_order_relaxed); }

  // Ends the requests whose time is over. Service thread. Returns when to call again, ns; kEndOfTime: nothing
  // is in flight.
  int64_t check(int64_t now);

 private:
  void keep_ticking();

  NodeMembership& membership_;
  std::mutex mutex_;  // after Qp::send_lock
  std::vector<Qp*> watched_;
  std::atomic<bool> ticking_{false};
  std::atomic<bool> lingers_{false};
};

}  // namespace verbena
