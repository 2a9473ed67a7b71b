// SPDX-License-Identifier: BSD-2-Clause
#include "check/forks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "check/mappings.h"
#include "check/next_function.h"
#include "check/outstanding.h"
#include "check/protection.h"

namespace verbena::check {
namespace {

constexpr uint64_t kLongestLook = 1 << 20;  // bytes of one region that are compared
constexpr uint64_t kMostLooks = 16 << 20;   // of all together: a child that only calls exec waits for it

std::atomic<bool> prepared{false};  // ibv_fork_init(3)

// Registered memory of the parent, as the child has got it.
struct Inherited {
  const Region* region;
  uint64_t sum;
};

std::vector<Inherited>& inherited() {
  static auto* const all = new std::vector<Inherited>;
  return *all;
}
StackId forked_at = 0;
pid_t child = 0;  // that `inherited` is of

bool is_prepared() {
  return prepared.load(std::memory_order_relaxed) || getenv("RDMAV_FORK_SAFE") != nullptr ||
         getenv("IBV_FORK_SAFE") != nullptr;  // libibverbs/init.c, ibverbs_init()
}

// Pages of the process's own that the device has pinned.
bool is_pinned(const Object& object) {
  if (object.kind != Kind::kMr || !object.alive) return false;
  const auto& region = static_cast<const Region&>(object);
  return region.has_range && region.memory != 0 && region.length != 0 &&
         (region.access & IBV_ACCESS_ON_DEMAND) == 0;
}

uint64_t length_to_look_at(const Region& region) { return std::min(region.length, kLongestLook); }

// Before the fork, which takes the model's lock after the handlers of others.
void prepare() {
  StackId here = 0;
  if (!is_inside()) {
    const Stack stack = capture_stack();
    const Locked locked;
    const auto& all = all_objects();
    const auto first = std::find_if(all.begin(), all.end(), [](const Object* object) {
      return is_pinned(*object) && !is_parents(*object);
    });
    here = first != all.end() ? keep_stack(stack) : 0;
    if (first != all.end() && !is_prepared())
      report(rule("fork-unprepared"), (*first)->name + " is registered when the process forks",
             {{"forks here", here}, {"registered here", (*first)->created}});
  }
  lock_for_fork();
  forked_at = here;
}

void in_child() {
  enter_process();
  unlock_after_fork();
  learn_stack();
  const Locked locked;
  unprotect_memory(0, UINTPTR_MAX);  // the child's copies belong to no request
  inherited().clear();
  child = getpid();
  if (forked_at == 0 || !is_enabled(rule("child-changes-registered"))) return;
  const std::vector<Mapping> mappings = read_mappings();
  uint64_t left = kMostLooks;
  for (const Object* object : all_objects()) {
    if (!is_pinned(*object)) continue;
    const auto& region = static_cast<const Region&>(*object);
    const uint64_t length = length_to_look_at(region);
    const uintptr_t end = region.memory + length;
    const bool is_shared = std::any_of(mappings.begin(), mappings.end(), [&](const Mapping& each) {
      return each.is_shared() && each.begin < end && region.memory < each.end;
    });
    uint64_t sum = 0;
    if (is_shared || length > left || is_on_stack(region.memory, length) ||
        !sum_of_memory(region.memory, length, &sum))
      continue;
    left -= length;
    inherited().push_back({&region, sum});
  }
}

}  // namespace

void report_child_changes() {
  if (child != getpid()) return;  // not of vfork(2), whose memory is the parent's
  bool got = false;
  const Locked locked(&got);  // a signal handler may end the process
  if (!got) return;
  for (const Inherited& each : inherited()) {
    uint64_t sum = 0;
    if (sum_of_memory(each.region->memory, length_to_look_at(*each.region), &sum) && sum != each.sum)
      report(
          rule("child-changes-registered"),
          text("%s of process %d was changed by its child", each.region->name.c_str(), each.region->process),
          {{"forked here", forked_at}, {"registered here", each.region->created}});
  }
  inherited().clear();
}

void watch_forks() { pthread_atfork(prepare, unlock_after_fork, in_child); }

}  // namespace verbena::check

extern "C" {

__attribute__((visibility("default"))) int ibv_fork_init() {
  using namespace verbena::check;
  static const auto next = next_function<int()>("ibv_fork_init");
  prepared.store(true, std::memory_order_relaxed);
  return next();
}

// A child mostly ends by this, without the destructors of libraries (_exit(2)).
__attribute__((visibility("default"), noreturn)) void _exit(int status) {
  verbena::check::report_child_changes();
  for (;;) syscall(SYS_exit_group, status);
}
}
