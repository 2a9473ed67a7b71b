// SPDX-License-Identifier: BSD-2-Clause
//
// Ids and event channels of librdmacm, whose functions are preceded by these.
#include <errno.h>
#include <rdma/rdma_cma.h>

#include <algorithm>

#include "check/kept_memory.h"
#include "check/next_function.h"
#include "check/operations.h"
#include "check/watch.h"

namespace verbena::check {
namespace {

struct ConnectionId : Object {
  const void* qp = nullptr;  // of the accepted connection, until it is established
  StackId accepted = 0;
  uint32_t events_read = 0;
  uint32_t events_acknowledged = 0;
  StackId event_read = 0;

  ConnectionId() : Object(Kind::kCmId) {}
};

ConnectionId& enter_id(rdma_cm_id* id, rdma_event_channel* channel, const Stack& stack) {
  auto object = std::make_unique<ConnectionId>();
  object->name = text("rdma_cm_id %p", static_cast<void*>(id));
  if (const Object* const known = find_object(channel); known != nullptr) object->uses.push_back(known);
  return enter(std::move(object), id, nullptr, stack);
}

rdma_event_channel* create_channel() {
  static const auto next = next_function<rdma_event_channel*()>("rdma_create_event_channel");
  const Stack stack = capture_stack();
  rdma_event_channel* const channel = next();
  if (channel != nullptr)
    made(Kind::kCmChannel, channel, nullptr, "rdma_create_event_channel", stack, {},
         "event channel with descriptor %d", channel->fd);
  return channel;
}

void destroy_channel(rdma_event_channel* channel) {
  static const auto next = next_function<void(rdma_event_channel*)>("rdma_destroy_event_channel");
  destroy_object(channel, "rdma_destroy_event_channel", capture_stack(), [](const void* handle) {
    next(static_cast<rdma_event_channel*>(const_cast<void*>(handle)));
    return 0;
  });
}

int create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space space) {
  static const auto next =
      next_function<int(rdma_event_channel*, rdma_cm_id**, void*, rdma_port_space)>("rdma_create_id");
  const Stack stack = capture_stack();
  if (!is_usable(channel, "rdma_create_id", stack)) return errno = EINVAL, -1;
  const int result = next(channel, id, context, space);
  if (result != 0) return result;
  const Locked locked;
  enter_id(*id, channel, stack);
  return 0;
}

int destroy_id(rdma_cm_id* id) {
  static const auto next = next_function<int(rdma_cm_id*)>("rdma_destroy_id");
  const Stack stack = capture_stack();
  {
    const Locked locked;
    const auto* const known = find<ConnectionId>(id);
    const auto* const qp =
        known != nullptr && known->alive && id->qp != nullptr ? find<QueuePair>(id->qp) : nullptr;
    if (qp != nullptr && qp->alive)
      report(rule("cm-id-with-qp"), text("rdma_destroy_id: %s has %s", known->name.c_str(), qp->name.c_str()),
             {{"destroyed here", keep_stack(stack)},
              {"the queue pair was made here", qp->created},
              {"the id was made here", known->created}});
  }
  const int error = destroy_object(id, "rdma_destroy_id", stack, [](const void* handle) {
    return next(static_cast<rdma_cm_id*>(const_cast<void*>(handle)));
  });
  return error == 0 ? 0 : -1;  // errno is set: rdma_destroy_id(3)
}

int accept(rdma_cm_id* id, rdma_conn_param* parameters) {
  static const auto next = next_function<int(rdma_cm_id*, rdma_conn_param*)>("rdma_accept");
  const Stack stack = capture_stack();
  if (!is_usable(id, "rdma_accept", stack)) return errno = EINVAL, -1;
  {
    const Locked locked;
    if (auto* const known = find<ConnectionId>(id); known != nullptr && id->qp != nullptr) {
      known->accepted = keep_stack(stack);
      known->qp = id->qp;
      if (auto* const qp = find<QueuePair>(id->qp); qp != nullptr) qp->accepted = known->accepted;
    }
  }
  const int result = next(id, parameters);
  // Without a channel of the program's, rdma_accept has waited for the event (rdma_accept(3)).
  if (result != 0 || (id->event != nullptr && id->event->event == RDMA_CM_EVENT_ESTABLISHED)) {
    const Locked locked;
    if (auto* const qp = find<QueuePair>(id->qp); qp != nullptr) qp->accepted = 0;
  }
  return result;
}

int get_event(rdma_event_channel* channel, rdma_cm_event** event) {
  static const auto next = next_function<int(rdma_event_channel*, rdma_cm_event**)>("rdma_get_cm_event");
  const Stack stack = capture_stack();
  if (!is_usable(channel, "rdma_get_cm_event", stack)) return errno = EBADF, -1;
  const int result = next(channel, event);
  if (result != 0) return result;
  const Locked locked;
  rdma_cm_event& read = **event;
  if (read.event == RDMA_CM_EVENT_CONNECT_REQUEST) enter_id(read.id, channel, stack);
  // A request is an event of the id that listens (librdmacm/cma.c, ucma_process_conn_req()).
  const void* const owner = read.event == RDMA_CM_EVENT_CONNECT_REQUEST ? read.listen_id : read.id;
  if (auto* const id = find<ConnectionId>(owner); id != nullptr) {
    ++id->events_read;
    id->event_read = keep_stack(stack);
  }
  if (auto* const qp = find<QueuePair>(read.id->qp); qp != nullptr) qp->accepted = 0;
  return 0;
}

int acknowledge(rdma_cm_event* event) {
  static const auto next = next_function<int(rdma_cm_event*)>("rdma_ack_cm_event");
  if (event != nullptr) {
    const Locked locked;
    const void* const owner = event->event == RDMA_CM_EVENT_CONNECT_REQUEST ? event->listen_id : event->id;
    if (auto* const id = find<ConnectionId>(owner); id != nullptr) ++id->events_acknowledged;
  }
  return next(event);
}

}  // namespace

std::string missing_events(const Object& object, StackId* read) {
  if (const auto* const cq = dynamic_cast<const CompletionQueue*>(&object); cq != nullptr) {
    *read = cq->event_read;
    const uint64_t missing = cq->events_read - std::min<uint64_t>(cq->events_acknowledged, cq->events_read);
    if (missing != 0)
      return text(": %llu of %u completion events are not acknowledged",
                  static_cast<unsigned long long>(missing), cq->events_read);
  }
  if (const auto* const id = dynamic_cast<const ConnectionId*>(&object); id != nullptr) {
    *read = id->event_read;
    const uint32_t missing = id->events_read - std::min(id->events_acknowledged, id->events_read);
    return missing == 0
               ? ""
               : text(": %u of %u events are not acknowledged (rdma_ack_cm_event)", missing, id->events_read);
  }
  *read = object.async_event_read;
  const uint32_t missing = object.async_read - std::min(object.async_acknowledged, object.async_read);
  return missing == 0 ? ""
                      : text(": %u of %u asynchronous events are not acknowledged (ibv_ack_async_event)",
                             missing, object.async_read);
}

}  // namespace verbena::check

extern "C" {

#define VERBENA_EXPORTED __attribute__((visibility("default")))
VERBENA_EXPORTED rdma_event_channel* rdma_create_event_channel() { return verbena::check::create_channel(); }
VERBENA_EXPORTED void rdma_destroy_event_channel(rdma_event_channel* channel) {
  verbena::check::destroy_channel(channel);
}
VERBENA_EXPORTED int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context,
                                    rdma_port_space space) {
  return verbena::check::create_id(channel, id, context, space);
}
VERBENA_EXPORTED int rdma_destroy_id(rdma_cm_id* id) { return verbena::check::destroy_id(id); }
VERBENA_EXPORTED int rdma_accept(rdma_cm_id* id, rdma_conn_param* parameters) {
  return verbena::check::accept(id, parameters);
}
VERBENA_EXPORTED int rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
  return verbena::check::get_event(channel, event);
}
VERBENA_EXPORTED int rdma_ack_cm_event(rdma_cm_event* event) { return verbena::check::acknowledge(event); }
}
