// SPDX-License-Identifier: BSD-2-Clause
//
// The queue pairs of this process that have waiting requests. A program that polls drives these requests. The
// service thread drives them when the program does not poll.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace verbena {

class Network;
struct Qp;

class Scheduler {
 public:
  // Drives the requests of one queue pair (progress_send_queue).
  using Progress = int64_t (*)(Qp& qp, bool from_service);
  // Wakes the service thread.
  using Wake = void (*)(void* context);
  Scheduler(Progress progress, Wake wake, void* wake_context)
      : progress_(progress), wake_(wake), wake_context_(wake_context) {}

  // The caller holds send_lock of the queue pair.
  void add(Qp* qp);
  // On return the scheduler does not touch the queue pair any more.
  void remove(Qp* qp);

  // Is there anything to drive? Sockets count as well (set_network_active).
  bool has_work() const { return work_.load(std::memory_order_relaxed) != 0; }
  void progress_from_poll(Network* network);

  // `active`: programs that poll must look at the sockets of the network, too.
  void set_network_active(bool active);
  // The same for the network of packets.
  void set_packets_active(bool active);

  // The service thread drives the requests. Returns when to call again, ns; kEndOfTime: when woken.
  int64_t progress_from_service();

 private:
  static constexpr uint32_t kNetworkIsActive = 1u << 31, kPacketsAreActive = 1u << 30;
  static constexpr uint32_t kSockets = kNetworkIsActive | kPacketsAreActive;
  void set_sockets(uint32_t bit, bool active);
  int64_t progress_all(bool from_service);  // under mutex_
  void publish();                           // under mutex_

  const Progress progress_;
  const Wake wake_;
  void* const wake_context_;
  std::mutex mutex_;  // held while requests are driven
  std::vector<Qp*> waiting_;
  std::atomic<bool> polled_{false};     // since the last look of the service thread
  std::atomic<uint32_t> work_{0};       // size of waiting_, and kSockets
  std::atomic<bool> service_awake_{false};
  int idle_ticks_ = 0;  // of the service thread
};

}  // namespace verbena
