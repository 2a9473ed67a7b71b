// SPDX-License-Identifier: BSD-2-Clause
//
// The observer that writes records (record.h) into the ring of this process. One per process.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "fabric/instruments.h"
#include "observe/fast_path_observer.h"
#include "observe/observer.h"
#include "observe/retry_observer.h"
#include "record/record.h"
#include "record/record_ring.h"

namespace verbena::record {

class Recorder final : public Observer, public FastPathObserver, public RetryObserver {
 public:
  // What is recorded from now on. Any thread, at any time.
  void set_wish(const RecordWish& wish);
  // Another observer, which is told of everything as well. It stays for ever.
  void set_next(Observer* next) { next_.store(next, std::memory_order_relaxed); }

  Observer* next() const { return next_.load(std::memory_order_relaxed); }

  RingWriter& ring() { return ring_; }

  void on_request(const RequestEvent& event) override;
  void on_response(const ResponseEvent& event) override;
  void on_datagram(const DatagramEvent& event) override;
  void on_packet(const PacketEvent& event) override;
  void on_frame(const FrameEvent& event) override;
  void on_completion(const CompletionEvent& event) override;
  void on_state(const StateEvent& event) override;
  void on_post(const PostEvent& event) override;
  void on_poll(const PollEvent& event) override;
  void on_event(const RaisedEvent& event) override;
  void on_small_request(const SmallRequestEvent& event) override;
  void on_retry(const RetryEvent& event) override;

  // After fork(2), in the child: its thread has another number.
  static void forget_thread();

 private:
  template <typename Event>
  void pass_on(void (Observer::*call)(const Event&), const Event& event) const;
  RecordWish wish() const { return RecordWish::unpack(wish_.load(std::memory_order_relaxed)); }
  void note(TimelineRecord record);
  bool is_repeated_rnr(const ResponseEvent& event);
  void write_message(const ResponseEvent& event, uint32_t most);
  void write_unsafe(const ResponseEvent& event, const MessageRecord& record);

  RingWriter ring_;
  std::atomic<uint64_t> wish_{0};
  std::atomic<Observer*> next_{nullptr};
  // RNR NAKs as an adapter would send them: the requester here looks more often than an RNR timer allows. By
  // the number of the queue pair: its number and PSN, and when the next one is due, ns.
  struct Waiting {
    std::atomic<uint64_t> request{0};
    std::atomic<int64_t> until{0};
  };
  std::array<Waiting, 256> waiting_{};
};

}  // namespace verbena::record
