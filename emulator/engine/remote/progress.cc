// SPDX-License-Identifier: BSD-2-Clause
#include "engine/remote/progress.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "adapter/clock.h"
#include "engine/objects/process.h"
#include "fabric/kernel_epoll.h"
#include "no_cancellation.h"

namespace verbena {
namespace {

// With more connections than this, epoll(7) is asked which of them are ready.
constexpr size_t kFew = 4;
constexpr int kMostEvents = 64;
// The service thread polls for the rest of a long message at this interval, until nothing has come for
// kRestPatience, and for kRestInAll at most. To be woken for each part would cost the sender, which does the
// waking, more than the sending.
constexpr int64_t kRestLook = 3'000, kRestPatience = 100'000, kRestInAll = 1'000'000;
// A program whose polls find the service thread at the sockets this often in a row waits until it has done,
// for kProgressPatience at most.
constexpr uint32_t kInVain = 128;
constexpr std::chrono::milliseconds kProgressPatience{1};
// So long a program that has polled in vain gives its processor away (EmptyPolls).
constexpr timespec kMoment{0, 100'000};

void pause_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

RemoteProgress::RemoteProgress(Process& process, Connections& connections, FrameReceiver& receiver,
                               Deadlines& deadlines)
    : process_(process),
      connections_(connections),
      receiver_(receiver),
      deadlines_(deadlines),
      outer_(kernel_epoll_create()) {
  arm(true);
}

RemoteProgress::~RemoteProgress() {
  if (outer_ >= 0) syscall(SYS_close, outer_);
}

void RemoteProgress::arm(bool armed) {
  if (armed == armed_) return;
  armed_ = armed;
  epoll_event event{};
  event.events = EPOLLIN;
  kernel_epoll_ctl(outer_, armed ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, connections_.peers().epoll(), &event);
}

// ---- one round ----

bool RemoteProgress::drive_one(RemotePeer& peer, bool from_service) {
  const bool program_polls = !from_service || polled_in_a_row_.load(std::memory_order_relaxed) != 0;
  const FrameReceiver::Progress progress = receiver_.drive(peer, {from_service, program_polls});
  if (progress.lingers) deadlines_.note_lingering();  // the program may not poll again
  return progress.moved;
}

void RemoteProgress::ask_which_are_ready() {
  epoll_event events[kMostEvents];
  const long count = kernel_epoll_wait(connections_.peers().epoll(), events, kMostEvents, 0);
  for (long i = 0; i < count; ++i) static_cast<RemotePeer*>(events[i].data.ptr)->ready = true;
}

// Has anything come?
bool RemoteProgress::drive(bool from_service) {
  if (connections_.seeks() || connections_.datagrams().has_waiting()) connections_.serve(now_ns());
  const auto& peers = connections_.peers().all();
  const bool are_many = peers.size() > kFew;
  if (are_many) ask_which_are_ready();
  bool moved = false;
  // By index: while one is driven others may be added.
  for (size_t i = 0; i < peers.size(); ++i) {
    RemotePeer& peer = *peers[i];
    if (!peer.connected.load(std::memory_order_relaxed)) continue;
    if (are_many && !peer.ready && !peer.stalled && !peer.gathered.load(std::memory_order_relaxed)) continue;
    peer.ready = false;
    moved |= drive_one(peer, from_service);
  }
  if (moved) empty_polls_.reset();
  return moved;
}

void RemoteProgress::tell_of_receives() {
  if (!receives_posted_.load(std::memory_order_relaxed) || !receives_posted_.exchange(false)) return;
  receiver_.tell_of_receives();
}

void RemoteProgress::receive_posted() {
  receives_posted_.store(true, std::memory_order_release);
  if (asleep_.load(std::memory_order_acquire)) process_.membership().kick();
}

// ---- the program ----

// A poll found the lock taken. If the service thread has it, and has had it for many polls, that thread was
// probably preempted, perhaps by this very program: to go on polling would only keep it waiting.
bool RemoteProgress::wait_for_service(std::unique_lock<std::timed_mutex>& lock) {
  if (!serving_.load(std::memory_order_relaxed)) return false;  // another thread of the program polls
  if (polls_in_vain_.fetch_add(1, std::memory_order_relaxed) < kInVain) return false;
  polls_in_vain_.store(0, std::memory_order_relaxed);
  // The system's clock: pthread_mutex_timedlock(3) is what the thread sanitizer of gcc 12 knows, not
  // pthread_mutex_clocklock(3). If that clock is set back meanwhile, the wait ends with the service thread's
  // work.
  return lock.try_lock_until(std::chrono::system_clock::now() + kProgressPatience);
}

void RemoteProgress::drive_from_poll() {
  polled_.store(true, std::memory_order_relaxed);
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() && !wait_for_service(lock)) return;
  const NoCancellation guard;  // connections that break are closed
  if (polls_in_vain_.load(std::memory_order_relaxed) != 0) polls_in_vain_.store(0, std::memory_order_relaxed);
  tell_of_receives();
  for (const std::shared_ptr<RemotePeer>& peer : connections_.peers().all())
    if (peer->held_since != 0) ++peer->held_polls;
  if (drive(false)) {
    received_by_polls_.store(received_by_polls_.load(std::memory_order_relaxed) + 1,
                             std::memory_order_relaxed);
  } else if (!deadlines_.is_ticking()) {
    empty_polls_.reset();  // nothing is in flight
  } else if (empty_polls_.note() && empty_polls_.is_long(now_ns())) {
    lock.unlock();
    syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &kMoment, nullptr);
  }
}

void RemoteProgress::before_sleep() {
  if (!connections_.is_active()) return;
  flush_all();
  polled_.store(false, std::memory_order_relaxed);
  if (!asleep_.load(std::memory_order_acquire)) process_.membership().kick();
}

// ---- the service thread ----

// Is a long message on its way, or was one a moment ago?
bool RemoteProgress::awaits_rest() const {
  const auto& peers = connections_.peers().all();
  return std::any_of(peers.begin(), peers.end(), [](const std::shared_ptr<RemotePeer>& peer) {
    return (peer->bulk_in.left != 0 || peer->takes_large != 0) && !peer->stalled &&
           peer->connected.load(std::memory_order_relaxed);
  });
}

void RemoteProgress::receive_rest() {
  const int64_t begin = now_ns();
  int64_t last = begin, now = begin;
  const auto is_lock_wanted = [this] {
    return polled_.load(std::memory_order_relaxed) || flushing_.load(std::memory_order_relaxed) != 0;
  };
  while (awaits_rest() && !is_lock_wanted() && now - last < kRestPatience && now - begin < kRestInAll) {
    while (now_ns() < now + kRestLook) pause_processor();
    const bool moved = drive(true);
    now = now_ns();
    if (moved) last = now;
  }
}

bool RemoteProgress::is_anything_unread() const {
  epoll_event events[kMostEvents];
  const long count = kernel_epoll_wait(connections_.peers().epoll(), events, kMostEvents, 0);
  // Room for what is to be sent does not count.
  return std::any_of(events, events + std::max(count, 0L),
                     [](const epoll_event& event) { return (event.events & ~uint32_t{EPOLLOUT}) != 0; });
}

int64_t RemoteProgress::serve() {
  ServiceLook look;
  look.now = now_ns();
  const bool unscheduled =
      was_unscheduled(std::exchange(looked_at_, look.now), look.now, deadlines_.is_ticking());
  look.deadline = unscheduled ? look.now + kCatchUp : deadlines_.check(look.now);
  look.program_polled = polled_.exchange(false, std::memory_order_relaxed);
  look.polled_in_a_row = look.program_polled ? polled_in_a_row_.load(std::memory_order_relaxed) + 1 : 0;
  polled_in_a_row_.store(look.polled_in_a_row, std::memory_order_relaxed);
  look.lingered = deadlines_.take_lingering();
  // A program that polls reads the sockets itself. One that polls only now and then leaves things unread.
  if (look.program_polled && !armed_) {
    const bool is_unread = is_anything_unread();
    look.left_to_program = !(is_unread && was_unread_);
    look.newly_unread = is_unread && !was_unread_;
    was_unread_ = is_unread;
  }
  std::unique_lock lock(mutex_, std::defer_lock);
  if (!look.left_to_program && lock.try_lock()) {
    serving_.store(true, std::memory_order_relaxed);
    // A program that polls posts several receive WQEs before it polls again.
    if (!look.program_polled) tell_of_receives();
    if (drive(true)) {
      poll_share_.note_service();
      receive_rest();
    }
    for (const std::shared_ptr<RemotePeer>& peer : connections_.peers().all()) look.stalled |= peer->stalled;
    connections_.peers().drop_unused();
  }
  look.lock_was_taken = !look.left_to_program && !lock.owns_lock();
  if (lock.owns_lock() && look.program_polled && armed_)
    look.program_is_quicker =
        poll_share_.program_is_quicker(received_by_polls_.load(std::memory_order_relaxed));
  look.receives_posted = receives_posted_.load(std::memory_order_relaxed);
  look.searches = connections_.seeks() || connections_.datagrams().has_waiting();
  const ServicePlan plan = plan_service(look);
  arm(plan.arm);
  asleep_.store(plan.asleep, std::memory_order_release);
  serving_.store(false, std::memory_order_relaxed);
  return plan.next;
}

// ---- sending ----

void RemoteProgress::flush_all() {
  flushing_.fetch_add(1, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  flushing_.fetch_sub(1, std::memory_order_relaxed);
  flush_peers();
}

void RemoteProgress::flush_last() {
  const std::lock_guard lock(mutex_);
  connections_.pass_last_datagrams();
  flush_peers();
}

void RemoteProgress::flush_at_exit() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  connections_.pass_last_datagrams();
  flush_peers();
}

void RemoteProgress::flush_peers() {
  connections_.send_waiting_datagrams(now_ns());
  for (const std::shared_ptr<RemotePeer>& peer : connections_.peers().all()) {
    std::lock_guard out(peer->out_mutex);
    FrameReceiver::acknowledge(*peer);
    try_at_once(*peer);
    flush(*peer);
  }
}

}  // namespace verbena
