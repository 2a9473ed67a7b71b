// SPDX-License-Identifier: BSD-2-Clause
//
// Whose turn it is at the sockets: a program's that polls, or the service thread's.
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "adapter/clock.h"
#include "engine/remote/remote.h"
#include "engine/remote/remote_requester.h"
#include "no_cancellation.h"

namespace verbena {
namespace {

using wire::Flow;

// So much one connection may do before the others have their turn.
constexpr int kRounds = 16;
// A program that polls takes so many messages, and posts receive requests for the next, before those are
// looked at.
constexpr int kMostMessages = 64;
// With more connections than this, epoll(7) is asked which of them have something.
constexpr size_t kFew = 4;
constexpr int kMostEvents = 64;
// While the program polls, the service thread looks this often whether it still does; twice, four and eight
// times as seldom when it has done so for a while: on a busy machine each look may cost the program its
// processor.
constexpr int64_t kPollingTick = 1'000'000;
constexpr int kWhile = 16, kMostDoublings = 3;
// It has found something lying there, and looks whether it still does.
constexpr int64_t kSecondLook = 100'000;
// While something is under way the service thread comes every 10 ms. After so long a pause it has had no
// processor; then no request fails before it has had time to make up for it.
constexpr int64_t kMissed = 100'000'000, kCatchUp = 10'000'000;
// Something could not be carried out yet, and nobody will say when it can.
constexpr int64_t kStalledTick = 200'000;
// What came before the end of a connection and cannot be carried out yet has so long.
constexpr int64_t kDrainPatience = 1'000'000'000;
// A program that has polled so long in vain gives its processor away for a moment once in so many polls.
constexpr int64_t kLong = 5'000'000, kMoment = 100'000;
constexpr uint32_t kLook = 256;
// Who waits for the rest of a long message looks so often, and so long, before it sleeps: to be woken for
// each part of it would cost the sender, who does the waking, more than it costs to send it. Then others have
// their turn.
constexpr int64_t kRestLook = 3'000, kRestPatience = 100'000, kRestTurn = 1'000'000;
// A program whose polls find the service thread at the sockets so often, one after the other, waits until it
// has done, but not for longer than this.
constexpr uint32_t kInVain = 128;
constexpr std::chrono::milliseconds kProgressPatience{1};

void pause_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

// Receive requests have been posted since somebody found none.
void Remote::tell_of_receives() {
  if (!receives_posted_.load(std::memory_order_relaxed) || !receives_posted_.exchange(false)) return;
  for (const std::shared_ptr<RemotePeer>& peer : peers_)
    std::erase_if(peer->waiting_for_receives, [](RemoteRequester* remote_requester) {
      if (!remote_requester->tell_of_receives()) return false;
      remote_requester->waits_for_receive = false;
      return true;
    });
}

void Remote::receive_posted() {
  receives_posted_.store(true, std::memory_order_release);
  if (asleep_.load(std::memory_order_acquire)) process_.membership().kick();
}

namespace {

// Nothing that has come from it is half done.
bool is_at_rest(const RemotePeer& peer) {
  return peer.in.size() == 0 && peer.bulk_in.left == 0 && peer.acknowledgements_due.empty() &&
         !peer.answers_due && !peer.stalled && !peer.broken.load(std::memory_order_relaxed) &&
         !peer.out_ended.load(std::memory_order_relaxed);
}

// Has the connection ended, and has all been carried out that came before? Who sends, answers and ends at once has sent
// and answered: what the kernel has of that outlives the process, and must not be dropped because our own bytes found
// nobody any more. `in_ended`: it has been read to its end; `progress`: something has just been carried out.
bool is_over(RemotePeer& peer, bool in_ended, bool progress) {
  if (in_ended || peer.broken.load(std::memory_order_acquire)) return true;
  if (!peer.stalled || progress || !peer.out_ended.load(std::memory_order_relaxed)) {
    peer.ended_at = 0;
    return false;
  }
  const int64_t now = now_ns();
  if (peer.ended_at == 0) peer.ended_at = now;
  return now - peer.ended_at > kDrainPatience;
}

}  // namespace

// Answers whether anything has come.
bool Remote::drive_one(RemotePeer& peer, bool from_service) {
  if (const int64_t at = peer.try_at.load(std::memory_order_relaxed);
      at != 0 && !from_service && is_at_rest(peer))
    if (now_ns() < at) return false;
  const uint64_t before = peer.bytes_in.load(std::memory_order_relaxed);
  // Who has the lock is sending, or awaits an answer, which sends what has gathered (below).
  if (std::unique_lock out(peer.out_mutex, std::defer_lock);
      peer.gathered.load(std::memory_order_relaxed) && out.try_lock()) {
    if (from_service) try_at_once(peer);
    flush(peer);
  }
  bool all = false, had_enough = false, in_ended = false;
  const bool polled = !from_service || polled_in_a_row_.load(std::memory_order_relaxed) != 0;
  int messages = 0;
  for (int round = 0; round < kRounds; ++round) {
    Next next;
    do next = parse_one(peer);
    while (next == Next::kOn && (++messages < kMostMessages || !polled));
    if (next == Next::kOn) {
      peer.stalled = had_enough = true;
      break;
    }
    const bool takes_by_itself =
        peer.bulk_in.left != 0 && (peer.bulk_in.remote_requester || peer.bulk_in.is_answer);
    peer.stalled = next == Next::kStop;
    if (next == Next::kStop || all || takes_by_itself || peer.fd < 0) break;
    const size_t had = peer.in.size();
    const Flow flow =
        peer.in.receive(peer.fd, peer.takes_large != 0 ? peer.takes_large : wire::InStream::kCapacity, &all);
    in_ended = flow == Flow::kEnded;
    if (flow != Flow::kMoved) break;
    peer.takes_large = 0;
    peer.bytes_in.store(peer.bytes_in.load(std::memory_order_relaxed) + peer.in.size() - had,
                        std::memory_order_relaxed);
  }
  const bool moved = peer.bytes_in.load(std::memory_order_relaxed) != before;
  if (moved) try_at_once(peer);
  bool lingers = had_enough || peer.stalled;
  if (moved || !peer.acknowledgements_due.empty() || peer.answers_due) {
    std::lock_guard out(peer.out_mutex);
    peer.answers_due = false;
    // Acknowledgements alone wait for the program's answer, or for the next turn.
    const bool others = !peer.out.empty() || !peer.reads.empty() || !peer.answers.empty();
    acknowledge(peer);
    peer.awaits_answer = false;
    if (from_service || others)
      flush(peer);
    else
      lingers |= peer.gathered.load(std::memory_order_relaxed);
  }
  if (is_over(peer, in_ended, moved || messages != 0)) lose(peer);
  if (lingers) {
    // The program may not come again.
    lingered_.store(true, std::memory_order_relaxed);
    if (!ticking_.load(std::memory_order_relaxed)) keep_ticking();
  }
  return moved;
}

bool Remote::drive(bool from_service) {
  if (seeking_.load(std::memory_order_relaxed)) serve_seeks(now_ns());
  send_waiting_datagrams(datagrams_wait_.load(std::memory_order_relaxed) ? now_ns() : 0);
  if (peers_.size() > kFew) {
    epoll_event events[kMostEvents];
    const long count = syscall(SYS_epoll_pwait, epoll_, events, kMostEvents, 0, nullptr, 8);
    for (long i = 0; i < count; ++i) static_cast<RemotePeer*>(events[i].data.ptr)->ready = true;
  }
  bool moved = false;
  // By index: while one is driven others may be met.
  for (size_t i = 0; i < peers_.size(); ++i) {
    RemotePeer& peer = *peers_[i];
    if (!peer.connected.load(std::memory_order_relaxed)) continue;
    if (peers_.size() > kFew && !peer.ready && !peer.stalled &&
        !peer.gathered.load(std::memory_order_relaxed))
      continue;
    peer.ready = false;
    moved |= drive_one(peer, from_service);
  }
  if (moved) empty_polls_ = 0;
  return moved;
}

// The service thread was taken off the processor in the midst of its turn, it seems, perhaps by this very
// program: to go on polling would only keep it there.
bool Remote::wait_for_service(std::unique_lock<std::timed_mutex>& progress_lock) {
  if (!served_.load(std::memory_order_relaxed)) return false;  // another thread of the program polls
  if (in_vain_.fetch_add(1, std::memory_order_relaxed) < kInVain) return false;
  in_vain_.store(0, std::memory_order_relaxed);
  // By the system's clock: pthread_mutex_timedlock(3) is what the thread sanitizer of gcc 12 knows, and
  // pthread_mutex_clocklock(3) not. Should that clock be set back meanwhile, the turn's end ends the wait.
  return progress_lock.try_lock_until(std::chrono::system_clock::now() + kProgressPatience);
}

void Remote::drive_from_poll() {
  polled_.store(true, std::memory_order_relaxed);
  std::unique_lock progress_lock(progress_mutex_, std::try_to_lock);
  if (!progress_lock.owns_lock() && !wait_for_service(progress_lock)) return;
  const NoCancellation guard;  // connections that break are closed
  if (in_vain_.load(std::memory_order_relaxed) != 0) in_vain_.store(0, std::memory_order_relaxed);
  tell_of_receives();
  for (const std::shared_ptr<RemotePeer>& peer : peers_)
    if (peer->held_since != 0) ++peer->held_polls;
  if (drive(false)) {
    taken_by_poll_.store(taken_by_poll_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  } else if (!ticking_.load(std::memory_order_relaxed)) {
    empty_polls_ = 0;  // nothing is under way
  } else if (waits_long()) {
    progress_lock.unlock();
    const timespec moment{0, kMoment};
    syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &moment, nullptr);
  }
}

// Under progress_mutex_. Has a program polled in vain for so long, with requests under way, that who should
// answer has no processor, perhaps? Perhaps it is the one that this program keeps from everybody else: Linux
// has been seen (6.18, each program in a scheduling group of its own) to let one that polls run for seconds
// while others of the machine were ready to run.
bool Remote::waits_long() {
  if (++empty_polls_ % kLook != 0) return false;
  const int64_t now = now_ns();
  if (empty_polls_ == kLook) empty_since_ = now;
  return now - empty_since_ > kLong;
}

// Under progress_mutex_, by the service thread. Is a long message on its way, or was there one a moment ago?
bool Remote::awaits_rest() const {
  return std::any_of(peers_.begin(), peers_.end(), [](const std::shared_ptr<RemotePeer>& peer) {
    return (peer->bulk_in.left != 0 || peer->takes_large != 0) && !peer->stalled &&
           peer->connected.load(std::memory_order_relaxed);
  });
}

void Remote::take_rest() {
  const int64_t begin = now_ns();
  int64_t last = begin, now = begin;
  const auto somebody_waits = [this] {
    return polled_.load(std::memory_order_relaxed) || progress_wanted_.load(std::memory_order_relaxed) != 0;
  };
  while (awaits_rest() && !somebody_waits() && now - last < kRestPatience && now - begin < kRestTurn) {
    while (now_ns() < now + kRestLook) pause_processor();
    const bool moved = drive(true);
    now = now_ns();
    if (moved) last = now;
  }
}

int64_t Remote::serve() {
  const int64_t now = now_ns();
  // Who had no processor for so long has made no calls, and has not seen what came: that first.
  const bool missed =
      now - std::exchange(served_at_, now) > kMissed && ticking_.load(std::memory_order_relaxed);
  int64_t next = missed ? now + kCatchUp : check_deadlines(now);
  const bool polled = polled_.exchange(false, std::memory_order_relaxed);
  const int in_a_row = polled ? polled_in_a_row_.load(std::memory_order_relaxed) + 1 : 0;
  polled_in_a_row_.store(in_a_row, std::memory_order_relaxed);
  const int64_t tick = kPollingTick << std::min(in_a_row / kWhile, kMostDoublings);
  if (lingered_.exchange(false, std::memory_order_relaxed)) next = std::min(next, now + tick);
  bool stalled = false;
  // Who polls is quicker, and need not wait for this thread to have done with its turn: perhaps it is off the
  // CPU. But one that looks only now and then leaves things lying.
  const bool lay = lay_;
  const bool keeps_out = polled && !armed_ && !is_left_lying();
  if (lay_ && !lay) next = std::min(next, now + kSecondLook);
  std::unique_lock progress_lock(progress_mutex_, std::defer_lock);
  if (!keeps_out && progress_lock.try_lock()) {
    served_.store(true, std::memory_order_relaxed);
    // One that polls posts several before it polls again.
    if (!polled) tell_of_receives();
    if (drive(true)) {
      ++taken_here_;
      take_rest();
    }
    for (const std::shared_ptr<RemotePeer>& peer : peers_) stalled |= peer->stalled;
    drop_unused_peers();
  }
  // Somebody has the turn: no use in being woken again and again by what he is about to take.
  const bool taken = !keeps_out && !progress_lock.owns_lock();
  if (taken) next = std::min(next, now + kSecondLook);
  const bool keeps_away = keeps_out || taken || (polled && armed_ && is_quicker_by_polling());
  arm(!keeps_away && !stalled);  // what lies there would wake it at once
  asleep_.store(!keeps_away, std::memory_order_release);
  if (keeps_away) next = std::min(next, now + tick);
  if (receives_posted_.load(std::memory_order_relaxed)) next = std::min(next, now + kPollingTick);
  if (stalled) next = std::min(next, now + kStalledTick);
  if (seeking_.load(std::memory_order_relaxed) || datagrams_wait_.load(std::memory_order_relaxed))
    next = std::min(next, now + kPollingTick);
  served_.store(false, std::memory_order_relaxed);
  return next;
}

// Of what has come lately, has the program taken most? One that polls for its own completions and waits for
// the others by looking at its memory has not.
bool Remote::is_quicker_by_polling() {
  constexpr uint32_t kLately = 16, kMost = 4;
  const uint32_t by_poll = taken_by_poll_.load(std::memory_order_relaxed) - taken_by_poll_before_;
  if (by_poll + taken_here_ < kLately) return false;
  const bool quicker = taken_here_ * kMost < by_poll;
  taken_by_poll_before_ += by_poll;
  taken_here_ = 0;
  return quicker;
}

// Was there something in the sockets when the service thread looked last, and is there now?
bool Remote::is_left_lying() {
  epoll_event events[kMostEvents];
  const long count = syscall(SYS_epoll_pwait, epoll_, events, kMostEvents, 0, nullptr, 8);
  // Room for what is to be sent is nothing that lies there.
  const bool lies = std::any_of(events, events + std::max(count, 0L), [](const epoll_event& event) {
    return (event.events & ~uint32_t{EPOLLOUT}) != 0;
  });
  return std::exchange(lay_, lies) && lies;
}

void Remote::before_sleep() {
  if (!is_active()) return;
  flush_all();
  polled_.store(false, std::memory_order_relaxed);
  if (!asleep_.load(std::memory_order_acquire)) process_.membership().kick();
}

void Remote::flush_all() {
  progress_wanted_.fetch_add(1, std::memory_order_relaxed);
  const std::lock_guard progress_lock(progress_mutex_);
  progress_wanted_.fetch_sub(1, std::memory_order_relaxed);
  flush_peers();
}

void Remote::flush_at_exit() {
  const std::unique_lock progress_lock(progress_mutex_, std::try_to_lock);
  if (progress_lock.owns_lock()) flush_peers();
}

void Remote::flush_peers() {
  // Within the node nobody has to answer for that: who sends and ends at once has sent.
  send_waiting_datagrams(now_ns());
  for (const std::shared_ptr<RemotePeer>& peer : peers_) {
    std::lock_guard out(peer->out_mutex);
    acknowledge(*peer);
    try_at_once(*peer);
    flush(*peer);
  }
}

}  // namespace verbena
