// SPDX-License-Identifier: BSD-2-Clause
//
// GET_EVENT and WRITE_CM_EVENT. The program's thread waits in the boundary by reading a token (claim.h),
// again if another thread has taken the event.
#include <cstring>

#include "rdma_cm/call.h"

namespace verbena::rdma_cm {
namespace {

// The program has fetched the event. Under the mutex.
void count(QueuedEvent& event) {
  Context& context = *event.context;
  ++context.events_reported;
  for (const std::unique_ptr<Multicast>& multicast : context.multicasts)
    if (multicast->serial == event.multicast) ++multicast->events_reported;
}

// The new id of a connection request is valid from now on, in the file that has fetched it. Under the mutex.
void publish(Call& call, QueuedEvent& event, std::list<Context*>& entry) {
  Context* fresh = event.fresh.release();
  fresh->file = call.file;
  entry.front() = fresh;
  call.file->contexts.splice(call.file->contexts.end(), entry);
  call.state.contexts.put(fresh->id, fresh);
  ++event.context->backlog;
}

}  // namespace

int get_event(Call& call) {
  const auto& request = call.as<rdma_ucm_get_event>();
  File& file = *call.file;
  std::list<Context*> entry(1);
  const std::lock_guard lock(call.state.mutex);
  if (file.closed) return EBADF;
  if (!call.has_token || file.events.empty()) {
    show_events(file);
    return kAskForToken;
  }
  QueuedEvent& event = file.events.front();
  if (const int error = call.respond(request.response, event.response); error != 0) {
    show_events(file);
    return error;
  }
  count(event);
  if (event.fresh != nullptr) publish(call, event, entry);
  file.events.pop_front();
  show_events(file);
  return 0;
}

// An event of the program's own, behind those that are there (rdma_write_cm_event(3),
// rdma_resolve_addrinfo(3)).
int write_event(Call& call) {
  const auto& request = call.as<WriteCmEvent>();
  if (request.event != kUserEvent && request.event != kInternalEvent) return EINVAL;
  std::list<QueuedEvent> queued(1);
  ContextInUse context;
  if (const int error = call.find(request.id, &context); error != 0) return error;
  QueuedEvent& told = queued.front();
  told.context = context.get();
  told.response.event = request.event;
  told.response.status = request.status;
  static_assert(sizeof told.response.param >= sizeof request.argument);
  std::memcpy(&told.response.param, &request.argument, sizeof request.argument);
  const std::lock_guard lock(call.state.mutex);
  told.number = call.state.next_event++;
  told.response.uid = context->uid;
  told.response.id = context->id;
  context->file->events.splice(context->file->events.end(), queued);
  show_events(*context->file);
  return 0;
}

}  // namespace verbena::rdma_cm
