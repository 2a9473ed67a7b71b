// SPDX-License-Identifier: BSD-2-Clause
#include "engine/roce_transport/roce_progress.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <utility>

#include "adapter/clock.h"
#include "engine/objects/process.h"
#include "fabric/kernel_epoll.h"
#include "fabric/packet_drops.h"
#include "no_cancellation.h"
#include "observe/log.h"
#include "observe/observer.h"

namespace verbena {
namespace {

constexpr int kMostPackets = 64;       // received from one socket in one round
constexpr int kPacketsPerAnswer = 16;  // then requests and acknowledgements that are due are sent
constexpr int kFewPackets = 2;         // that are acknowledged a moment later
// A program may poll another queue before that which has the request.
constexpr int kPollsBeforeAnswer = 2;
constexpr int64_t kShortestRoceTick = 20'000, kLongestRoceTick = 10'000'000;
// As in remote/progress.cc.
constexpr uint32_t kPollsInVain = 128;
constexpr std::chrono::milliseconds kLockPatienceOfPolls{1};
constexpr timespec kBreak{0, 100'000};
// To one source. Its connection manager asks again later if there is no answer.
constexpr packets::AnswerRate kRefusals{200, 1000};

}  // namespace

RoceProgress::RoceProgress(Process& process, RoceReceiver& receiver, Management& management,
                           void (*send_mad)(void*, const Mad&), void* network)
    : process_(process),
      receiver_(receiver),
      management_(management),
      send_mad_(send_mad),
      network_(network),
      sockets_epoll_(kernel_epoll_create()),
      inboxes_epoll_(kernel_epoll_create()),
      outer_(kernel_epoll_create()),
      lease_(process.directory().header().packet_reader, process.directory().header().packet_poller,
             process.membership().slot()),
      refusals_(kRefusals) {}

RoceProgress::~RoceProgress() {
  for (const int fd : {sockets_epoll_, inboxes_epoll_, outer_})
    if (fd >= 0) syscall(SYS_close, fd);
}

void RoceProgress::add_socket(const udp::RoceSocket& socket) {
  sockets_.push_back({&socket, std::make_unique<udp::ReceiveBatch>()});
  epoll_event event{};
  event.events = EPOLLIN;
  kernel_epoll_ctl(sockets_epoll_, EPOLL_CTL_ADD, socket.fd(), &event);
}

void RoceProgress::add_inbox(MessageSocket connection) {
  epoll_event event{};
  event.events = EPOLLIN;
  kernel_epoll_ctl(inboxes_epoll_, EPOLL_CTL_ADD, connection.fd(), &event);
  std::lock_guard lock(watch_mutex_);
  new_inboxes_.push_back(std::move(connection));
  has_new_inboxes_.store(true, std::memory_order_release);
  new_inboxes_.back().send({&kInboxTaken, 1});
}

void RoceProgress::arm(int epoll, bool armed, bool* is_armed) {
  if (armed == *is_armed) return;
  *is_armed = armed;
  epoll_event event{};
  event.events = EPOLLIN;
  kernel_epoll_ctl(outer_, armed ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, epoll, &event);
}

void RoceProgress::set_active(bool active) {
  if (is_active_ == active) return;
  is_active_ = active;
  process_.scheduler().set_packets_active(active);
  process_.membership().kick();
}

// ---- watched paths ----

void RoceProgress::note_timer(int64_t at) {
  int64_t next = next_timer_.load(std::memory_order_relaxed);
  while (at < next && !next_timer_.compare_exchange_weak(next, at, std::memory_order_relaxed)) {
  }
}

void RoceProgress::watch(const std::shared_ptr<RocePath>& path) {
  {
    std::lock_guard lock(watch_mutex_);
    newly_watched_.push_back(path);
    next_timer_.store(0, std::memory_order_relaxed);
  }
  if (!is_watching_.exchange(true, std::memory_order_acq_rel)) process_.membership().kick();
}

void RoceProgress::forget(const RocePath& path) {
  const auto is_it = [&](const std::shared_ptr<RocePath>& each) { return each.get() == &path; };
  std::erase_if(watched_, is_it);
  std::lock_guard lock(watch_mutex_);
  std::erase_if(newly_watched_, is_it);
}

void RoceProgress::run_timers(int64_t now) {
  {
    std::lock_guard lock(watch_mutex_);
    watched_.insert(watched_.end(), newly_watched_.begin(), newly_watched_.end());
    newly_watched_.clear();
    next_timer_.store(kEndOfTime, std::memory_order_relaxed);
  }
  int64_t next = kEndOfTime;
  std::erase_if(watched_, [&](const std::shared_ptr<RocePath>& path) {
    const int64_t wanted = path->on_timer(now);
    next = std::min(next, wanted);
    return wanted == kEndOfTime;
  });
  // A path that is idle for the moment stays watched until the next tick: to begin again costs a wake-up.
  std::lock_guard lock(watch_mutex_);
  if (!newly_watched_.empty()) return;
  note_timer(watched_.empty() ? kEndOfTime : std::min(next, now + kLongestRoceTick));
  if (watched_.empty()) is_watching_.store(false, std::memory_order_release);
}

// ---- one round ----

struct RoceProgress::Round {
  int64_t now;
  int64_t timer = kEndOfTime;
  int packets = 0;
};

void RoceProgress::take_mad(const Round& round, const ForwardedPacket& way, std::span<const uint8_t> datagram,
                            bool is_forwarded) {
  Mad mad;
  if (!Management::parse(datagram, &mad)) return;
  mad.from = way.from;
  mad.to = way.to;
  const uint32_t slot = management_.receiver_of(mad);
  if (slot == process_.membership().slot() || slot == MadRules::kEverybody) management_.take(mad);
  if (is_forwarded) return;
  if (slot == MadRules::kEverybody)
    forwarder_.forward_to_all(way, datagram);
  else if (slot != MadRules::kNobody)
    forwarder_.forward_to(slot, way, datagram);
  else if (!refusals_.allow(mad.from.bytes, round.now))
    process_.directory().count_drop(PacketDrop::kAnswer);
  else if (Management::refuse(&mad))
    send_mad_(network_, mad);
}

void RoceProgress::take(Round& round, const ForwardedPacket& way, std::span<const uint8_t> datagram,
                        bool is_forwarded) {
  uint32_t qpn = 0;
  if (!receiver_.take(datagram, way.from, way.to, way.ip, round.now, &qpn)) {
    if (qpn == roce::kManagementQpn)
      take_mad(round, way, datagram, is_forwarded);
    else if (!is_forwarded && !forwarder_.forward(qpn, way, datagram))
      process_.directory().count_drop(PacketDrop::kUnknown);
  }
  if (++round.packets % kPacketsPerAnswer == 0 || receiver_.must_answer()) send(round);
}

// RoCE v2 has no authentication: --peers says who may send.
bool RoceProgress::is_welcome(const wire::NetAddress& from) {
  if (process_.directory().devices().network.takes_from(from.bytes)) return true;
  if (const uint64_t count = process_.directory().count_drop(PacketDrop::kForeign);
      (count & (count - 1)) == 0)
    VERBENA_WARN(roce_stranger, "a packet from %s is dropped: the address is not in --peers (%llu so far)",
                 from.text().c_str(), static_cast<unsigned long long>(count));
  return false;
}

namespace {

[[gnu::cold]] void tell_of_packet(Observer& observer, const udp::ReceivedPacket& packet,
                                  const wire::NetAddress& to) {
  PacketRoute route;
  route.source = packet.from.address.bytes;
  route.destination = to.bytes;
  route.traffic_class = packet.ip.traffic_class;
  route.hop_limit = packet.ip.hop_limit;
  route.flow_label = packet.ip.flow_label;
  observer.on_packet(
      {route, packet.from.port, packet.datagram.first(packet.datagram.size() - roce::kIcrcSize)});
}

}  // namespace

// The peers can go on with requests while this process answers theirs.
void RoceProgress::send(Round& round) {
  round.timer = std::min(round.timer, receiver_.send_requests(round.now));
  end_patience();
  answering_ = receiver_.send_answers(round.now);
}

void RoceProgress::send_at_end(Round& round, bool from_poll) {
  round.timer = std::min(round.timer, receiver_.send_requests(round.now));
  if (may_wait(round, from_poll)) return;
  end_patience();
  answering_ = receiver_.send_answers(round.now);
}

// The program is about to see what has come, and may reply at once: a system call for the acknowledgement
// would come before that. It goes with the reply, or a few polls later.
bool RoceProgress::may_wait(const Round& round, bool from_poll) {
  const bool waited = answering_ != 0;
  polls_before_answer_ = from_poll && waited ? polls_before_answer_ + 1 : 0;
  if (polls_before_answer_ > kPollsBeforeAnswer || round.packets > kFewPackets) return false;
  const size_t due = receiver_.acknowledging();
  const auto begins_waiting = [&] { return receiver_.is_answer_due() && patience_.begin(round.now); };
  if (due == 0 || !(from_poll || (waited ? goes_on_waiting(round) : begins_waiting()))) return false;
  answering_ = due;
  return true;
}

// Acknowledgements that the service thread, or a poll, has left. The program has been given its time when
// they were left by a poll.
bool RoceProgress::goes_on_waiting(const Round& round) const {
  return patience_.is_waiting() && round.packets == 0 && round.now < patience_.until() &&
         receiver_.is_answer_due();
}

// Before answers are sent: those that a reply has taken along are not due any more.
void RoceProgress::end_patience() {
  if (patience_.is_waiting()) patience_.end(receiver_.is_answer_due());
}

void RoceProgress::flush_answers() {
  if (answering_ == 0) return;
  end_patience();
  answering_ = receiver_.send_answers(now_ns());
}

void RoceProgress::flush_at_exit() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) flush_answers();
}

// A batch is read to its end: afterwards another process may read. A poll that has received all that there
// seems to be returns with it; whatever else there is, the next one receives.
void RoceProgress::read_sockets(Round& round, bool from_poll) {
  udp::ReceivedPacket packet;
  for (const Port& port : sockets_)
    for (int i = 0;; ++i) {
      const bool has_more = i < kMostPackets && (!from_poll || port.batch->may_go_on());
      if (i != 0 && port.batch->is_empty() && !has_more) break;
      const udp::Arrival arrival = port.socket->receive(*port.batch, &packet);
      if (arrival == udp::Arrival::kNothing) break;
      if (arrival == udp::Arrival::kDamaged) process_.directory().count_drop(PacketDrop::kDamaged);
      if (arrival != udp::Arrival::kPacket || !is_welcome(packet.from.address)) continue;
      const wire::NetAddress& own = port.socket->own().address;
      // Packets that this node has sent to itself are known already.
      if (Observer* const seen = observer(); seen != nullptr && !groups_.is_own(packet.from.address))
          [[unlikely]]
        tell_of_packet(*seen, packet, own);
      take(round, {packet.from.address, own, packet.ip}, packet.datagram, false);
    }
}

// A child of this process may have copies of the sockets: closing them would not end their events.
void RoceProgress::follow_groups() {
  groups_.follow(
      [](void* self, int fd, bool joined) {
        epoll_event event{};
        event.events = EPOLLIN;
        kernel_epoll_ctl(static_cast<RoceProgress*>(self)->inboxes_epoll_,
                         joined ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, fd, &event);
      },
      this);
}

// Each process has sockets of its own for its groups.
void RoceProgress::read_groups(Round& round) {
  udp::ReceivedPacket packet;
  for (const auto& socket : groups_.sockets())
    for (int i = 0; i < kMostPackets || !of_groups_.is_empty(); ++i) {
      const udp::Arrival arrival = socket->receive(of_groups_, &packet);
      if (arrival == udp::Arrival::kNothing) break;
      if (arrival == udp::Arrival::kDamaged) process_.directory().count_drop(PacketDrop::kDamaged);
      const wire::NetAddress& from = packet.from.address;
      if (arrival != udp::Arrival::kPacket || groups_.is_own(from) || !is_welcome(from)) continue;
      if (Observer* const seen = observer(); seen != nullptr) [[unlikely]]
        tell_of_packet(*seen, packet, socket->own().address);
      receiver_.take_from_group(packet.datagram, from, socket->own().address, packet.ip);
      ++round.packets;
    }
}

// What other processes have read for this one. They have checked the ICRC. False: there may be more.
bool RoceProgress::read_inboxes(Round& round) {
  if (has_new_inboxes_.load(std::memory_order_acquire)) {
    std::lock_guard lock(watch_mutex_);
    for (MessageSocket& connection : new_inboxes_) inboxes_.add(std::move(connection));
    new_inboxes_.clear();
    has_new_inboxes_.store(false, std::memory_order_relaxed);
  }
  return inboxes_.read(kMostPackets, [&](const ForwardedPacket& way, std::span<const uint8_t> datagram) {
    take(round, way, datagram, true);
  });
}

bool RoceProgress::has_process(uint32_t slot) const {
  const NodeDirectory& directory = process_.directory();
  return slot < kMaxSlots &&
         directory.alive(slot, directory.slot(slot).generation.load(std::memory_order_acquire));
}

// Has anything come? Under the lock.
bool RoceProgress::drive(bool from_poll) {
  Round round{now_ns()};
  if (from_poll) lease_.note_poll(round.now);
  const auto is_alive = [this](uint32_t slot) { return has_process(slot); };
  const bool reads = (from_poll || !lease_.others_poll(round.now)) && lease_.acquire(round.now, is_alive);
  leaves_to_others_.store(!reads, std::memory_order_relaxed);
  bool moved = answering_ != 0;
  read_groups(round);
  // Before the sockets: they were read before. What comes from the sockets now would overtake what is left.
  const bool is_up_to_date = read_inboxes(round);
  if (reads) {
    if (is_up_to_date) read_sockets(round, from_poll);
    lease_.release();
  }
  moved |= round.packets != 0;
  if (moved) send_at_end(round, from_poll);
  note_timer(round.timer);
  if (round.now >= next_timer_.load(std::memory_order_relaxed)) run_timers(round.now);
  if (moved) empty_polls_.reset();
  return moved;
}

// ---- the program ----

// As RemoteProgress::wait_for_service().
bool RoceProgress::wait_for_service(std::unique_lock<std::timed_mutex>& lock) {
  if (!serving_.load(std::memory_order_relaxed)) return false;
  if (polls_in_vain_.fetch_add(1, std::memory_order_relaxed) < kPollsInVain) return false;
  polls_in_vain_.store(0, std::memory_order_relaxed);
  return lock.try_lock_until(std::chrono::system_clock::now() + kLockPatienceOfPolls);
}

void RoceProgress::drive_from_poll() {
  polled_.store(true, std::memory_order_relaxed);
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() && !wait_for_service(lock)) return;
  if (!is_active_) return;
  if (polls_in_vain_.load(std::memory_order_relaxed) != 0) polls_in_vain_.store(0, std::memory_order_relaxed);
  if (drive(true)) {
    received_by_polls_.store(received_by_polls_.load(std::memory_order_relaxed) + 1,
                             std::memory_order_relaxed);
    // The service thread sleeps until the sockets wake it: it has to look whether the program polls again.
    if (answering_ != 0 && asleep_.exchange(false, std::memory_order_acq_rel)) process_.membership().kick();
  } else if (!is_watching_.load(std::memory_order_relaxed)) {
    empty_polls_.reset();
  } else if (empty_polls_.note() && empty_polls_.is_long(now_ns())) {
    lock.unlock();
    syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &kBreak, nullptr);
  }
}

void RoceProgress::before_sleep() {
  polled_.store(false, std::memory_order_relaxed);
  if (!asleep_.load(std::memory_order_acquire)) process_.membership().kick();
}

// ---- the service thread ----

bool RoceProgress::is_anything_unread() const {
  epoll_event event;
  return kernel_epoll_wait(sockets_epoll_, &event, 1, 0) > 0;
}

int64_t RoceProgress::serve() {
  ServiceLook look;
  look.now = now_ns();
  look.program_polled = polled_.exchange(false, std::memory_order_relaxed);
  look.polled_in_a_row = polled_in_a_row_ = look.program_polled ? polled_in_a_row_ + 1 : 0;
  // A program that polls reads the sockets itself. One that polls only now and then leaves things unread.
  if (look.program_polled && !armed_) {
    const bool is_unread = is_anything_unread();
    look.left_to_program = !(is_unread && was_unread_);
    look.newly_unread = is_unread && !was_unread_;
    was_unread_ = is_unread;
  }
  std::unique_lock lock(mutex_, std::defer_lock);
  bool more = false;
  int64_t answers_until = 0;
  if (!look.left_to_program && lock.try_lock()) {
    serving_.store(true, std::memory_order_relaxed);
    // Answers that a poll has left are no reason to receive instead of polls.
    const bool sends_answers = answering_ != 0;
    if (is_active_ && drive(false) && !sends_answers) poll_share_.note_service();
    more = answering_ != 0;
    if (patience_.is_waiting()) answers_until = patience_.until();
  }
  look.lock_was_taken = !look.left_to_program && !lock.owns_lock();
  // What another process reads for this one comes through an inbox.
  look.left_to_program |= lock.owns_lock() && leaves_to_others_.load(std::memory_order_relaxed);
  if (lock.owns_lock() && look.program_polled && armed_)
    look.program_is_quicker =
        poll_share_.program_is_quicker(received_by_polls_.load(std::memory_order_relaxed));
  look.deadline = kEndOfTime;
  if (const int64_t timer = next_timer_.load(std::memory_order_relaxed); timer != kEndOfTime)
    look.deadline = std::clamp(timer, look.now + kShortestRoceTick, look.now + kLongestRoceTick);
  if (more) look.deadline = std::min(look.deadline, std::max(answers_until, look.now));
  const ServicePlan plan = plan_service(look);
  const bool is_wanted = !lock.owns_lock() || is_active_;
  arm(sockets_epoll_, plan.arm && is_wanted, &armed_);
  arm(inboxes_epoll_, !look.program_polled && is_wanted, &inboxes_armed_);
  asleep_.store(plan.asleep, std::memory_order_release);
  serving_.store(false, std::memory_order_relaxed);
  return plan.next;
}

}  // namespace verbena
