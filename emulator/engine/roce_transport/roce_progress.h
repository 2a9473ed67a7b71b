// SPDX-License-Identifier: BSD-2-Clause
//
// Which thread receives packets, and when. One at a time has the lock: a thread of the program that polls, or
// the service thread, which sleeps on the sockets otherwise. The policy is that of engine/remote
// (remote/progress_policy.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/packets/answer_limit.h"
#include "engine/remote/progress_policy.h"
#include "engine/roce_transport/management.h"
#include "engine/roce_transport/packet_inboxes.h"
#include "engine/roce_transport/port_sharing.h"
#include "engine/roce_transport/reading_lease.h"
#include "engine/roce_transport/reply_patience.h"
#include "engine/roce_transport/roce_groups.h"
#include "engine/roce_transport/roce_path.h"
#include "engine/roce_transport/roce_receiver.h"
#include "udp/receive_batch.h"
#include "udp/roce_socket.h"

namespace verbena {

class RoceProgress final : public RocePathOwner {
 public:
  // `send_mad(network, mad)` sends a reply to a MAD.
  RoceProgress(Process& process, RoceReceiver& receiver, Management& management,
               void (*send_mad)(void* network, const Mad& mad), void* network);
  ~RoceProgress();
  RoceProgress(const RoceProgress&) = delete;
  RoceProgress& operator=(const RoceProgress&) = delete;

  // Packets come through this socket from now on. Before others can call. Throws std::bad_alloc.
  void add_socket(const udp::RoceSocket& socket);

  // Packets that another process has read come over this connection from now on. Any thread.
  void add_inbox(MessageSocket connection);

  // The groups of this process have changed. Under the lock.
  void follow_groups();

  // The lock of the receiver. Before Qp::send_lock.
  std::timed_mutex& mutex() { return mutex_; }
  int descriptor() const { return outer_; }  // readable when the service thread is to receive

  // Are there queue pairs that packets may come for? Otherwise nobody looks at the sockets. Under the lock.
  void set_active(bool active);
  // The path is forgotten. Under the lock.
  void forget(const RocePath& path);

  void drive_from_poll();
  void before_sleep();
  // What the service thread does each time it runs. Returns when to call again, ns.
  int64_t serve();

  // Sends acknowledgements that wait, of all queue pairs. Under mutex().
  void flush_answers();
  // The process is about to exit.
  void flush_at_exit();

  // RocePathOwner
  void watch(const std::shared_ptr<RocePath>& path) override;
  void note_timer(int64_t at) override;
  std::unique_lock<std::timed_mutex> try_receiving() override {
    return std::unique_lock(mutex_, std::try_to_lock);
  }

 private:
  struct Round;
  bool drive(bool from_poll);
  void read_sockets(Round& round, bool from_poll);
  void read_groups(Round& round);
  bool read_inboxes(Round& round);
  void take(Round& round, const ForwardedPacket& way, std::span<const uint8_t> datagram, bool is_forwarded);
  void take_mad(const Round& round, const ForwardedPacket& way, std::span<const uint8_t> datagram,
                bool is_forwarded);
  bool is_welcome(const wire::NetAddress& from);
  void send(Round& round);
  void send_at_end(Round& round, bool from_poll);
  bool may_wait(const Round& round, bool from_poll);
  bool goes_on_waiting(const Round& round) const;
  void end_patience();
  bool has_process(uint32_t slot) const;
  void run_timers(int64_t now);
  void arm(int epoll, bool armed, bool* is_armed);
  bool is_anything_unread() const;
  bool wait_for_service(std::unique_lock<std::timed_mutex>& lock);

  Process& process_;
  RoceReceiver& receiver_;
  Management& management_;
  void (*const send_mad_)(void*, const Mad&);
  void* const network_;
  struct Port {
    const udp::RoceSocket* socket;
    std::unique_ptr<udp::ReceiveBatch> batch;
  };
  std::vector<Port> sockets_;
  // epoll(7): the service thread waits for `outer_`. In it, while that thread is to receive,
  // `sockets_epoll_`, and while the program does not poll, `inboxes_epoll_`.
  int sockets_epoll_ = -1, inboxes_epoll_ = -1, outer_ = -1;

  // Any thread.
  std::timed_mutex mutex_;
  std::atomic<int64_t> next_timer_{INT64_MAX};
  std::atomic<bool> is_watching_{false};  // paths are watched: the service thread ticks
  std::atomic<bool> polled_{false};       // the program has polled since the service thread looked last
  std::atomic<bool> has_new_inboxes_{false};
  std::atomic<bool> asleep_{false};   // ServicePlan::asleep
  std::atomic<bool> serving_{false};  // the service thread has the lock
  std::atomic<uint32_t> polls_in_vain_{0};
  std::atomic<uint32_t> received_by_polls_{0};
  std::mutex watch_mutex_;  // the last of all locks; the next two are under it
  std::vector<MessageSocket> new_inboxes_;
  std::vector<std::shared_ptr<RocePath>> newly_watched_;

  // Under mutex_.
  bool is_active_ = false;
  std::atomic<bool> leaves_to_others_{false};  // another process was reading
  PacketInboxes inboxes_;
  RoceGroups groups_{process_};
  PacketForwarder forwarder_{process_};
  ReadingLease lease_;
  size_t answering_ = 0;         // paths that have more answers to send
  int polls_before_answer_ = 0;  // polls while they wait
  ReplyPatience patience_;       // of the service thread
  std::vector<std::shared_ptr<RocePath>> watched_;
  packets::AnswerLimit refusals_;  // of MADs
  EmptyPolls empty_polls_;
  udp::ReceiveBatch of_groups_;

  // The service thread's.
  bool armed_ = false, inboxes_armed_ = false;
  bool was_unread_ = false;
  int polled_in_a_row_ = 0;
  PollShare poll_share_;
};

}  // namespace verbena
