// SPDX-License-Identifier: BSD-2-Clause
#include "check/forks.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "check/next_function.h"
#include "check/outstanding.h"

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

// [begin, end) of the mappings that processes share (proc(5), /proc/PID/maps).
std::vector<std::pair<uintptr_t, uintptr_t>> shared_mappings() {
  std::vector<std::pair<uintptr_t, uintptr_t>> found;
  std::string text;
  const long fd = syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return found;
  char buffer[4096];
  for (long got; (got = syscall(SYS_read, fd, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(got));
  syscall(SYS_close, fd);
  for (size_t at = 0; at < text.size(); at = std::min(text.find('\n', at), text.size() - 1) + 1) {
    unsigned long begin = 0, end = 0;
    char rights[5] = "";
    if (sscanf(text.c_str() + at, "%lx-%lx %4s", &begin, &end, rights) == 3 && rights[3] == 's')
      found.emplace_back(begin, end);
  }
  return found;
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
  inherited().clear();
  child = getpid();
  if (forked_at == 0 || !is_enabled(rule("child-changes-registered"))) return;
  const auto shared = shared_mappings();
  uint64_t left = kMostLooks;
  for (const Object* object : all_objects()) {
    if (!is_pinned(*object)) continue;
    const auto& region = static_cast<const Region&>(*object);
    const uint64_t length = length_to_look_at(region);
    const uintptr_t end = region.memory + length;
    const bool is_shared = std::any_of(shared.begin(), shared.end(), [&](const auto& mapping) {
      return mapping.first < end && region.memory < mapping.second;
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
