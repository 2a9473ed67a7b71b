// SPDX-License-Identifier: BSD-2-Clause
//
// Completion queues and their channels (ibv_create_cq(3), ibv_req_notify_cq(3), ibv_get_cq_event(3)). Polling
// is in poll.cc.
#include <errno.h>
#include <time.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "adapter/arming.h"
#include "adapter/clock.h"
#include "adapter/high_water.h"
#include "emulator.h"
#include "engine/completion/completion.h"
#include "engine/completion/cq_rings.h"
#include "engine/completion/lost_events.h"
#include "engine/events/async_events.h"
#include "engine/objects/context.h"
#include "engine/objects/cq.h"
#include "engine/objects/network.h"
#include "engine/objects/process.h"
#include "engine/rules/device_attributes.h"
#include "faults/injection.h"
#include "keep_errno.h"
#include "observe/log.h"

namespace verbena {
namespace {

bool worker_alive(void* process, uint32_t packed) {
  return static_cast<Process*>(process)->directory().worker_alive(packed);
}

std::string channel_name(uint32_t number) { return "c" + std::to_string(number); }

// A new channel; nullptr and errno.
std::unique_ptr<CompChannel> make_channel(NodeMembership& membership) {
  static std::atomic<uint32_t> next_number{1};
  auto channel = std::make_unique<CompChannel>();
  channel->number = next_number.fetch_add(1, std::memory_order_relaxed);
  const std::string name = channel_name(channel->number);
  channel->membership = &membership;
  channel->name = name;
  errno = membership.make_fifo(channel->fifo, name);
  if (errno == 0) channel->program_fd = channel->fifo.open_reader(membership.folder() + "/" + name);
  if (channel->program_fd >= 0) return channel;
  const int error = errno;
  channel.reset();
  errno = error;
  return nullptr;
}

}  // namespace

int create_comp_channel(Context* context, int* fd) {
  if (int error = usable(*context); error != 0) return error;
  // A channel that the program has closed keeps one descriptor until it is looked at. Four for each new one:
  // soon after the program has closed many, the descriptors are free again.
  constexpr size_t kLookedAt = 4;
  CompChannels& channels = context->channels;
  channels.drop_closed(kLookedAt);
  NodeMembership& membership = context->process->membership();
  auto channel = make_channel(membership);
  if (channel == nullptr && errno == EMFILE) {
    channels.drop_closed(channels.size());
    channel = make_channel(membership);
  }
  if (channel == nullptr) return errno;
  *fd = channel->program_fd;
  channels.add(std::move(channel));
  return 0;
}

int create_cq(Context* context, int cqe, int channel_fd, int comp_vector, uint64_t user_handle, Cq** out,
              const CqOptions& options) {
  Process& process = *context->process;
  if (int error = usable(*context); error != 0) return error;
  if (const uint64_t most = context->device->limits.max_cqe; cqe < 1 || static_cast<uint32_t>(cqe) > most) {
    VERBENA_WARN(cq_size, "ibv_create_cq: %d entries: must be 1 to %llu", cqe,
                 static_cast<unsigned long long>(most));
    return EINVAL;
  }
  if (comp_vector < 0 || comp_vector >= kCompletionVectors) {
    VERBENA_WARN(cq_vector, "ibv_create_cq: completion vector %d: must be below %d", comp_vector,
                 kCompletionVectors);
    return EINVAL;
  }
  CompChannel* channel = nullptr;
  if (channel_fd >= 0 && (channel = context->channels.find(channel_fd)) == nullptr) {
    VERBENA_WARN(cq_channel, "ibv_create_cq: descriptor %d is no completion channel of the context",
                 channel_fd);
    return EINVAL;
  }

  auto* cq = new (std::nothrow) Cq;
  if (cq == nullptr) return ENOMEM;
  const bool counted = take_quota(*context, Counted::kCqs, "ibv_create_cq") == 0;
  if (!counted || !process.cq_indices().take(&cq->index)) {
    if (counted) give_quota(*context, Counted::kCqs);
    delete cq;
    return ENOMEM;
  }
  const bool committed =
      process.segment().commit(kCqTableOffset + sizeof(SharedCq) * cq->index, sizeof(SharedCq)) == 0;
  cq->process = &process;
  cq->flags = (options.stamped ? kCqStamped : 0u) | (options.ignore_overrun ? kCqIgnoresOverrun : 0u);
  cq->shared = committed ? process.view().cq(cq->index) : nullptr;
  if (cq->shared == nullptr || make_cq_ring(*cq, 0, cq_ring_order(static_cast<uint32_t>(cqe))) != 0) {
    VERBENA_WARN(no_memory, "ibv_create_cq: %d entries: there is no memory for them", cqe);
    process.cq_indices().give(cq->index);
    give_quota(*context, Counted::kCqs);
    delete cq;
    return ENOMEM;
  }
  cq->context = context;
  cq->user_handle = user_handle;
  cq->ignore_overrun = options.ignore_overrun;
  cq->channel = channel;
  SharedCq& shared = *cq->shared;
  shared.scattered_generation.store(0, std::memory_order_relaxed);
  shared.user_handle = user_handle;
  shared.channel = channel != nullptr ? channel->number : 0;
  shared.context = context->number;
  shared.flags = cq->flags;
  shared.armed.store(Arming{Armed::kNo, 0}.pack(), std::memory_order_relaxed);
  shared.overrun.store(0, std::memory_order_relaxed);
  shared.raised.store(0, std::memory_order_relaxed);
  shared.events_read.store(0, std::memory_order_relaxed);
  shared.lost.store(0, std::memory_order_relaxed);
  for (auto* word : {&shared.moderation, &shared.unreported, &shared.timer_asked})
    word->store(0, std::memory_order_relaxed);
  shared.alive.store(1, std::memory_order_release);
  cq->consumer.begin(cq->ring.current(), worker_alive, &process);
  if (channel != nullptr) channel->users.fetch_add(1, std::memory_order_relaxed);
  raise_high_water(process.view().header().cq_high_water, cq->index);
  process.set_cq(cq->index, cq);
  *out = cq;
  return 0;
}

int cq_capacity(const Cq* cq) {
  const uint64_t most = cq->context->device->limits.max_cqe;
  return static_cast<int>(std::min(uint64_t{1} << cq->ring.current().order, most));
}
uint32_t cq_handle(const Cq* cq) { return cq->index; }
bool is_of(const Cq* cq, const Context* context) { return cq->context->file == context->file; }

namespace {

uint64_t end_of_ring(const SharedCq& shared) {
  return shared.rings[shared.ring_generation.load(std::memory_order_acquire) & 1].tail.load(
      std::memory_order_relaxed);
}

// An event for entries that came while the CQ was not armed, and that no event has told of. mlx5's adapters
// have it, because arming names the last entry that was polled (rdma-core, providers/mlx5/cq.c,
// mlx5_arm_cq()). UCX depends on it: it arms after its last poll, and sleeps (uct_ib_iface_arm_cq()). What an
// event has told of raises none, so that a program that reads an event, arms and then polls is not woken
// twice.
void raise_for_entries_before(Cq& cq) {
  SharedCq& shared = *cq.shared;
  if (cq.channel == nullptr || shared.moderation.load(std::memory_order_relaxed) != 0) return;
  const uint64_t end = end_of_ring(shared);
  if (end == cq.told_to.load(std::memory_order_relaxed) || cq.consumer.seems_empty()) return;
  cq.told_to.store(end, std::memory_order_relaxed);
  raise_kept_back_event(shared, cq.process->self());
}

}  // namespace

int req_notify_cq(Cq* cq, bool solicited_only) {
  const KeepErrno guard;
  if (int error = usable(*cq->context); error != 0) return error;
  cq->look_again_at.store(0, std::memory_order_relaxed);
  arm(cq->shared->armed, solicited_only ? Armed::kSolicited : Armed::kNext);
  // The other half of the Dekker pair in raise_completion_event_slowly(): the program's next poll sees every
  // entry whose producer did not see the arming.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (Network* const network = cq->process->network(); network != nullptr) network->before_sleep();
  if (faults::Injection* const injection = faults::injection();
      injection != nullptr && cq->channel != nullptr) [[unlikely]]
    if (injection->wakes(cq->index, now_ns())) raise_kept_back_event(*cq->shared, cq->process->self());
  if (!solicited_only) raise_for_entries_before(*cq);
  return 0;
}

void cq_event(Cq* cq) {
  if (faults::Injection* const injection = faults::injection(); injection != nullptr) [[unlikely]]
    if (const uint64_t delay = injection->event_delay(cq->index, now_ns()); delay != 0) {
      constexpr uint64_t kSecond = 1'000'000'000;
      const timespec time{static_cast<time_t>(delay / kSecond), static_cast<long>(delay % kSecond)};
      nanosleep(&time, nullptr);
    }
  cq->comp_events.fetch_add(1, std::memory_order_relaxed);
  if (!cq->process->dead()) cq->told_to.store(end_of_ring(*cq->shared), std::memory_order_relaxed);
  cq->shared->events_read.fetch_add(1, std::memory_order_relaxed);
  if (!cq->process->dead() && cq->process->view().header().lost_events.load(std::memory_order_relaxed) != 0)
    reinject_lost_events(*cq->process);
}

int destroy_cq(Cq* cq, uint32_t* comp_events, uint32_t* async_events) {
  Process& process = *cq->process;
  *comp_events = *async_events = 0;
  if (process.dead()) return 0;
  if (cq->users.load(std::memory_order_acquire) != 0) {
    VERBENA_WARN(object_in_use, "ibv_destroy_cq: CQ %u: %u send and receive queues still complete into it",
                 cq->index, cq->users.load());
    return EBUSY;
  }
  SharedCq& shared = *cq->shared;
  shared.armed.store(Arming{Armed::kNo, 0}.pack(), std::memory_order_seq_cst);
  shared.alive.store(0, std::memory_order_release);
  process.forget_cq(cq->index);
  process.wait_for_hazards({"ibv_destroy_cq", "CQ", cq->index});
  if (cq->channel != nullptr) {
    // Take this CQ's records out of the pipe. Records of other CQs go back in, in their order.
    std::lock_guard lock(cq->channel->drain_mutex);
    std::vector<uint64_t> others;
    uint64_t record;
    while (cq->channel->fifo.read(&record, sizeof record))
      if (record != cq->user_handle) others.push_back(record);
    for (uint64_t other : others)
      if (cq->channel->fifo.write(&other, sizeof other) != 0) owe_event(process, other);
    cq->channel->users.fetch_sub(1, std::memory_order_release);
  }
  *comp_events = cq->comp_events.load(std::memory_order_relaxed);
  *async_events = take_back_events(*cq->context, cq->user_handle, cq->async_events.load());
  release_cq_rings(*cq);
  process.cq_indices().give(cq->index);
  give_quota(*cq->context, Counted::kCqs);
  delete cq;
  return 0;
}

}  // namespace verbena
