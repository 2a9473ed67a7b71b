// SPDX-License-Identifier: BSD-2-Clause
#include "rdma_cm/acknowledgement_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstddef>
#include <new>

#include "cm/cm.h"
#include "observe/log.h"
#include "rdma_cm/program_memory.h"

namespace verbena::rdma_cm {
namespace {

constexpr int64_t kPatience = 1000;  // ms

// The parts of librdmacm's objects that hold a wait (struct cma_id_private and struct cma_multicast of
// librdmacm/cma.c, rdma-core 28 to 64): how many events are acknowledged, and the condition variable.
struct IdMemory {
  rdma_cm_id id;
  void* device;
  void* private_data;
  size_t private_data_length;
  int acknowledged;
  int connect_error;
  int synchronous;
  pthread_cond_t changed;
  pthread_mutex_t mutex;
  uint32_t number;
};

struct GroupMemory {
  void* next;
  void* id;
  void* context;
  int acknowledged;
  pthread_cond_t changed;
  uint32_t number;
};

struct LibrdmacmCount {
  bool known = false;  // the memory looks like librdmacm's object
  uint32_t acknowledged = 0;
  uint64_t condition = 0;  // the address of the condition variable
};

template <typename Memory>
LibrdmacmCount read_count(const AcknowledgementWatch::Wait& wait) {
  Memory memory;
  if (!read_if_mapped(&memory, wait.object, sizeof memory)) return {};
  if (memory.number != wait.number || memory.acknowledged < 0) return {};
  return {.known = true,
          .acknowledged = static_cast<uint32_t>(memory.acknowledged),
          .condition = wait.object + offsetof(Memory, changed)};
}

LibrdmacmCount read_count(const AcknowledgementWatch::Wait& wait) {
  return wait.of_group ? read_count<GroupMemory>(wait) : read_count<IdMemory>(wait);
}

// The futex that a thread of this process sleeps on; 0: none, or it cannot be known.
uint64_t futex_of(pid_t thread) {
  char text[160];
  snprintf(text, sizeof text, "/proc/self/task/%d/syscall", static_cast<int>(thread));
  const long fd = syscall(SYS_openat, AT_FDCWD, text, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const long length = syscall(SYS_read, fd, text, sizeof text - 1);
  syscall(SYS_close, fd);
  if (length <= 0) return 0;
  text[length] = 0;
  long number = -1;  // "running" is no number
  uint64_t first = 0;
  if (sscanf(text, "%ld %" SCNx64, &number, &first) != 2 || number != SYS_futex) return 0;
  return first;
}

int64_t now_ms() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

void name_wait(const AcknowledgementWatch::Wait& wait, pid_t thread) {
  const uint64_t futex = futex_of(thread);
  if (futex == 0) return;
  const LibrdmacmCount count = read_count(wait);
  if (!count.known || count.acknowledged >= wait.events_read || futex < count.condition ||
      futex >= count.condition + sizeof(pthread_cond_t))
    return;
  VERBENA_ERROR(event_not_acknowledged,
                "%s: id %#" PRIx64
                ": waits for %u of %u events, which rdma_get_cm_event has returned, to be acknowledged by "
                "rdma_ack_cm_event",
                wait.call, wait.id, wait.events_read - count.acknowledged, wait.events_read);
}

}  // namespace

void AcknowledgementWatch::wake_up_for_the_next(cm::Service* service) {
  const int64_t wait = std::clamp<int64_t>(entries_.front().due - now_ms(), 1, kPatience);
  cm::call_later(service, static_cast<uint32_t>(wait), look, this);
}

void AcknowledgementWatch::expect(cm::Service* service, const Wait& wait) {
  if (wait.events_read == 0) return;
  const LibrdmacmCount count = read_count(wait);
  if (!count.known || count.acknowledged >= wait.events_read) return;
  const auto thread = static_cast<pid_t>(syscall(SYS_gettid));
  try {
    const std::lock_guard lock(mutex_);
    std::erase_if(entries_, [thread](const Entry& entry) { return entry.thread == thread; });
    entries_.push_back({wait, thread, now_ms() + kPatience});
    service_ = service;
    if (entries_.size() == 1) wake_up_for_the_next(service);
  } catch (const std::bad_alloc&) {
    // The wait is not named.
  }
}

void AcknowledgementWatch::look(void* self) {
  auto& watch = *static_cast<AcknowledgementWatch*>(self);
  std::unique_lock lock(watch.mutex_);
  while (!watch.entries_.empty()) {
    const Entry first = watch.entries_.front();
    if (first.due > now_ms()) return watch.wake_up_for_the_next(watch.service_);
    watch.entries_.erase(watch.entries_.begin());
    lock.unlock();
    name_wait(first.wait, first.thread);
    lock.lock();
  }
}

}  // namespace verbena::rdma_cm
