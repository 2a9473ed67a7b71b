// SPDX-License-Identifier: BSD-2-Clause
#include "check/watch.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "check/operations.h"
#include "check/outstanding.h"

namespace verbena::check {
namespace {

constexpr int64_t kPatience = 1'000'000'000;  // ns

struct Wait {
  const void* handle;
  int thread;
  bool destroys;
  int64_t since;
  StackId where;
};

std::vector<Wait>& waits() {
  static auto* const all = new std::vector<Wait>;
  return *all;
}

int64_t now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

// At most so many completions that wait in `cq` are of send queues.
uint64_t signaled_sends(const CompletionQueue& cq) {
  uint64_t count = 0;
  for (const Object* object : all_objects())
    if (object->kind == Kind::kQp && object->alive && !is_parents(*object))
      if (const auto& qp = static_cast<const QueuePair&>(*object); qp.send_cq == &cq)
        count += static_cast<uint64_t>(std::count_if(
            qp.sends.begin(), qp.sends.end(), [](const Request& request) { return request.signaled; }));
  return count;
}

// The completions that wait in a queue whose channel is waited for. The adapter counts them under its own
// lock, so the model's is not held meanwhile: the queue's destruction waits (begin_destroying()), and what
// was counted is of no use if it was polled or armed since.
struct Count {
  CompletionQueue* cq;
  uint64_t polls;
  StackId arming;
  bool armed;
  uint32_t waiting = 0;
};

bool holds(const Count& count) {
  const CompletionQueue& cq = *count.cq;
  return cq.polls == count.polls && cq.armed == count.armed && cq.arming == count.arming;
}

// Every completion that was missed is a fact: it is in the queue, and the thread does not wake. Is one of the
// channel's queues armed, then those that are not may be left to be polled after its event. Completions of
// the send queue are never solicited: a program that waits for solicited ones may leave them, too.
void look_at_queue(const CompletionQueue& cq, uint32_t waiting, bool any_armed, const Wait& wait) {
  if (waiting == 0 || (!cq.armed && any_armed)) return;
  if (cq.armed && cq.solicited_only && waiting <= signaled_sends(cq)) return;
  const std::string what = text("%s has %u completions, and the thread has waited for an event for a second",
                                cq.name.c_str(), waiting);
  if (!cq.armed)
    report(rule("wait-unarmed"), what, {{"waits here", wait.where}, {"the queue was made here", cq.created}});
  else if (cq.solicited_only)
    report(rule("solicited-never"), what, {{"waits here", wait.where}, {"armed here", cq.arming}});
  else
    report(rule("rearm-race"), what, {{"waits here", wait.where}, {"armed here", cq.arming}});
}

void look_at_end(const Wait& wait) {
  const Object* const object = find_object(wait.handle);
  if (object == nullptr) return;
  StackId read = 0;
  const std::string missing = missing_events(*object, &read);
  if (missing.empty()) return;  // it takes a second for another reason
  const std::string what = object->name + " has waited to be destroyed for a second" + missing;
  report(rule("events-unacknowledged"), what,
         {{"destroyed here", wait.where},
          {"the last event was read here", read},
          {"made here", object->created}});
}

void look_at_channel(const Wait& wait, const std::vector<Count>& counts) {
  const Object* const channel = find_object(wait.handle);
  if (channel == nullptr) return;
  bool any_armed = false;
  for (const Count& count : counts)
    if (count.cq->channel == channel) any_armed |= count.armed || !holds(count);
  for (const Count& count : counts)
    if (count.cq->channel == channel && holds(count))
      look_at_queue(*count.cq, count.waiting, any_armed, wait);
}

// A thread that was cancelled while it waited leaves its entry behind.
void forget_ended_threads() {
  std::erase_if(waits(), [](const Wait& wait) {
    return syscall(SYS_tgkill, getpid(), wait.thread, 0) != 0 && errno == ESRCH;
  });
}

bool is_waited_for(const Object* channel, int64_t latest) {
  return channel != nullptr && std::any_of(waits().begin(), waits().end(), [&](const Wait& wait) {
           return !wait.destroys && wait.since <= latest && wait.handle == channel->handle;
         });
}

// The queues of the channels that have been waited for since `latest`. None is destroyed while `counting` is
// set.
std::vector<Count> hold_queues(int64_t latest) {
  const Locked locked;
  forget_ended_threads();
  std::vector<Count> counts;
  for (Object* const object : all_objects()) {
    if (object->kind != Kind::kCq || !object->alive || is_parents(*object)) continue;
    auto& cq = static_cast<CompletionQueue&>(*object);
    if (cq.ending || !is_waited_for(cq.channel, latest)) continue;
    cq.counting = getpid();
    counts.push_back({&cq, cq.polls, cq.arming, cq.armed});
  }
  return counts;
}

void look() {
  const int64_t latest = now() - kPatience;
  std::vector<Count> counts = hold_queues(latest);
  for (Count& count : counts) count.waiting = provider().waiting(count.cq->cq);
  const Locked locked;
  for (const Count& count : counts) count.cq->counting = 0;
  for (const Wait& wait : waits()) {
    if (wait.since > latest) continue;
    if (wait.destroys)
      look_at_end(wait);
    else
      look_at_channel(wait, counts);
  }
}

void* watch(void*) {
  for (;;) {
    const timespec pause = {0, 100'000'000};
    nanosleep(&pause, nullptr);
    look();
  }
}

// With the lock held. Is this the first call of the process? The child of a fork starts a thread of its own.
bool enters_process() {
  static pid_t process = 0;
  if (process == getpid()) return false;
  process = getpid();
  waits().clear();
  return true;
}

void start_thread() {
  const Inside inside;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attr;
  pthread_attr_init(&attr);
  pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  pthread_create(&thread, &attr, watch, nullptr);
  pthread_attr_destroy(&attr);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void begin(const void* handle, bool destroys, const Stack& stack) {
  bool is_first = false;
  {
    const Locked locked;
    is_first = enters_process();
    waits().push_back({handle, this_thread(), destroys, now(), keep_stack(stack)});
  }
  if (is_first) start_thread();
}

void end(bool destroys) {
  const Locked locked;
  const int thread = this_thread();
  std::erase_if(waits(),
                [&](const Wait& wait) { return wait.thread == thread && wait.destroys == destroys; });
}

}  // namespace

CompletionQueue* begin_destroying(const void* handle) {
  for (;;) {
    {
      const Locked locked;
      auto* const cq = find<CompletionQueue>(handle);
      if (cq == nullptr || !cq->alive) return nullptr;
      if (cq->counting != getpid()) return cq->ending = true, cq;
    }
    sched_yield();
  }
}

Waiting::Waiting(const void* channel, const Stack& stack) { begin(channel, false, stack); }
Waiting::~Waiting() { end(false); }
Destroying::Destroying(const void* object, const Stack& stack) { begin(object, true, stack); }
Destroying::~Destroying() { end(true); }

}  // namespace verbena::check
