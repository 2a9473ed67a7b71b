// SPDX-License-Identifier: BSD-2-Clause
//
// Completion channels and asynchronous events. libibverbs serves them without asking the provider, so its
// functions are preceded by these.
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>

#include "check/completions.h"
#include "check/kept_memory.h"
#include "check/next_function.h"
#include "check/operations.h"
#include "check/watch.h"

#undef ibv_get_cq_event

namespace verbena::check {
namespace {

int get_event(ibv_comp_channel* channel, ibv_cq** cq, void** context) {
  static const auto next = next_function<int(ibv_comp_channel*, ibv_cq**, void**)>("ibv_get_cq_event");
  const Stack stack = capture_stack();
  if (!is_usable(channel, "ibv_get_cq_event", stack)) return errno = EBADF, -1;
  const Waiting waiting(channel, stack);
  const int error = next(channel, cq, context);
  if (error != 0) return error;
  const Locked locked;
  if (auto* const known = find<CompletionQueue>(*cq); known != nullptr && known->unpolled != 0)
    known->unpolled = keep_stack(stack);
  return 0;
}

void acknowledge(ibv_cq* cq, unsigned int count) {
  static const auto next = next_function<void(ibv_cq*, unsigned int)>("ibv_ack_cq_events");
  const Stack stack = capture_stack();
  if (!is_usable(cq, "ibv_ack_cq_events", stack)) return;
  {
    const Locked locked;
    if (auto* const known = find<CompletionQueue>(cq); known != nullptr) {
      known->events_acknowledged += count;
      if (known->events_acknowledged > known->events_read)
        report(
            rule("acknowledged-too-often"),
            text("%s: %llu events are acknowledged, %u were read", known->name.c_str(),
                 static_cast<unsigned long long>(known->events_acknowledged), known->events_read),
            {{"acknowledged here", keep_stack(stack)}, {"the last event was read here", known->event_read}});
    }
  }
  next(cq, count);
}

void acknowledge_async(ibv_async_event* event) {
  static const auto next = next_function<void(ibv_async_event*)>("ibv_ack_async_event");
  {
    const Locked locked;
    if (Object* const owner = find_owner(*event); owner != nullptr) ++owner->async_acknowledged;
  }
  next(event);
}

ibv_comp_channel* create(ibv_context* context) {
  static const auto next = next_function<ibv_comp_channel*(ibv_context*)>("ibv_create_comp_channel");
  const Stack stack = capture_stack();
  if (!is_usable(context, "ibv_create_comp_channel", stack)) return errno = EINVAL, nullptr;
  ibv_comp_channel* const channel = next(context);
  const Object* device = nullptr;
  {
    const Locked locked;
    device = find_object(context);
  }
  if (channel != nullptr && device != nullptr)  // else it is another provider's
    made(Kind::kChannel, channel, context, "ibv_create_comp_channel", stack, {context},
         "completion channel with descriptor %d", channel->fd);
  return channel;
}

int destroy(ibv_comp_channel* channel) {
  static const auto next = next_function<int(ibv_comp_channel*)>("ibv_destroy_comp_channel");
  const Stack stack = capture_stack();
  return destroy_object(channel, "ibv_destroy_comp_channel", stack, [](const void* handle) {
    return next(static_cast<ibv_comp_channel*>(const_cast<void*>(handle)));
  });
}

}  // namespace

Object* find_owner(const ibv_async_event& event) {
  switch (event.event_type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return find_object(event.element.qp);
    case IBV_EVENT_CQ_ERR:
      return find_object(event.element.cq);
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return find_object(event.element.srq);
    case IBV_EVENT_WQ_FATAL:
      return find_object(event.element.wq);
    default:
      return nullptr;
  }
}

}  // namespace verbena::check

extern "C" {

__attribute__((visibility("default"))) int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq,
                                                            void** context) {
  return verbena::check::get_event(channel, cq, context);
}
__attribute__((visibility("default"))) void ibv_ack_cq_events(ibv_cq* cq, unsigned int count) {
  verbena::check::acknowledge(cq, count);
}
__attribute__((visibility("default"))) void ibv_ack_async_event(ibv_async_event* event) {
  verbena::check::acknowledge_async(event);
}
__attribute__((visibility("default"))) ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  return verbena::check::create(context);
}
__attribute__((visibility("default"))) int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  return verbena::check::destroy(channel);
}
}
