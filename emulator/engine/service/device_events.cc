// SPDX-License-Identifier: BSD-2-Clause
//
// Events of a whole device (fabric/device_events.h): the service thread raises them at the contexts that have
// the device open.
#include "fabric/device_events.h"

#include "engine/events/async_events.h"
#include "engine/objects/context.h"
#include "engine/objects/qp.h"
#include "engine/qp_state/error_flow.h"
#include "engine/service/engine_service.h"
#include "observe/log.h"

namespace verbena {

void EngineService::watch_devices(void (*happened)(void*), void* context) {
  std::lock_guard lock(watcher_mutex_);
  device_watcher_ = happened;
  device_watcher_context_ = context;
  device_events_told_ = count_device_events(process_.directory());
}

void EngineService::tell_device_watcher() {
  std::lock_guard lock(watcher_mutex_);
  if (device_watcher_ == nullptr) return;
  const uint64_t count = count_device_events(process_.directory());
  if (count == device_events_told_) return;
  device_events_told_ = count;
  device_watcher_(device_watcher_context_);
}

void EngineService::serve_device_events() {
  tell_device_watcher();
  std::lock_guard lock(process_.contexts_mutex);
  for (Context* context : process_.contexts) {
    const DeviceEventLog& log = process_.directory().events(context->device_index);
    const uint64_t count = log.count();
    if (count - context->events_seen > DeviceEventLog::kLength) {
      VERBENA_WARN(device_events_lost, "%s: more happened than its log holds; the oldest is not told",
                   context->device->name.data());
      context->events_seen = count - DeviceEventLog::kLength;
    }
    for (; context->events_seen != count; ++context->events_seen) {
      const auto [type, port] = log.event(context->events_seen);
      if (context->failed.load(std::memory_order_relaxed)) continue;  // no event follows DEVICE_FATAL
      if (type == IBV_EVENT_DEVICE_FATAL) fail_context(*context);
      raise_port_event(*context, port, type == kAddressChange ? IBV_EVENT_GID_CHANGE : type);
    }
  }
}

// Flushes all posted requests, so that threads that sleep on a completion channel wake up (as mlx5's
// mlx5_ib_handle_internal_error()). From now on every verb fails with EIO.
void EngineService::fail_context(Context& context) {
  context.failed.store(true, std::memory_order_release);
  std::lock_guard lock(process_.serving_mutex());
  process_.for_each_qp([&](Qp& qp) {
    if (qp.context != &context) return;
    std::lock_guard send(qp.send_lock);
    if (qp.state.load(std::memory_order_acquire) != IBV_QPS_RESET) enter_error(qp);
  });
}

}  // namespace verbena
