// SPDX-License-Identifier: BSD-2-Clause
#include "rdma_cm/events.h"

#include <algorithm>
#include <new>

#include "observe/log.h"
#include "rdma_cm/translate.h"

namespace verbena::rdma_cm {
namespace {

const Multicast* membership(const Context& context, uint64_t serial) {
  for (const std::unique_ptr<Multicast>& multicast : context.multicasts)
    if (multicast->serial == serial) return multicast.get();
  return nullptr;
}

bool on_connection_request(State& state, Context& listener, const cm::Event& event) {
  std::list<QueuedEvent> queued(1);
  QueuedEvent& told = queued.front();
  told.context = &listener;
  told.response = to_response(event);
  told.fresh = std::make_unique<Context>();
  told.fresh->cm_id = event.id;
  told.fresh->space = listener.space;
  {
    const std::lock_guard lock(state.mutex);
    if (listener.backlog == 0) {
      VERBENA_WARN(cm_backlog_full,
                   "rdma_listen: id %u has its backlog of connection requests waiting: another one is %s",
                   listener.id, event.is_datagram ? "rejected" : "forgotten, and will be asked again");
      return false;
    }
    told.fresh->id = state.contexts.reserve();
    told.fresh->file = listener.file;
    --listener.backlog;
  }
  cm::set_context(event.id, told.fresh.get());

  const std::lock_guard lock(state.mutex);
  told.number = state.next_event++;
  told.response.uid = listener.uid;
  told.response.id = told.fresh->id;
  listener.file->events.splice(listener.file->events.end(), queued);
  show_events(*listener.file);
  return true;
}

void tell(State& state, Context& context, const cm::Event& event) {
  std::list<QueuedEvent> queued(1);
  QueuedEvent& told = queued.front();
  told.context = &context;
  told.response = to_response(event);
  const bool of_group =
      event.type == cm::EventType::kMulticastJoin || event.type == cm::EventType::kMulticastError;

  const std::lock_guard lock(state.mutex);
  if (event.type == cm::EventType::kDeviceRemoval) context.closing = true;
  if (context.uid == 0 && !context.accepting) return;
  told.number = state.next_event++;
  told.response.uid = context.uid;
  told.response.id = context.id;
  if (of_group) {
    const auto serial = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(event.join));
    const Multicast* multicast = membership(context, serial);
    if (multicast == nullptr) return;  // the id has left the group meanwhile
    told.multicast = serial;
    told.response.uid = multicast->uid;
    told.response.id = multicast->id;
  }
  if (context.uid == 0) {
    context.held.splice(context.held.end(), queued);
    return;
  }
  context.file->events.splice(context.file->events.end(), queued);
  show_events(*context.file);
}

}  // namespace

bool on_event(void* context, const cm::Event& event) {
  State* state = current_state();
  if (state == nullptr || context == nullptr) return false;
  try {
    auto& mine = *static_cast<Context*>(context);
    if (event.type == cm::EventType::kConnectRequest) return on_connection_request(*state, mine, event);
    tell(*state, mine, event);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void settle_accept(Context& context, bool accepted, uint64_t uid) {
  context.accepting = false;
  if (!accepted) {
    context.held.clear();
    return;
  }
  context.uid = uid;
  // In front of what was raised later: the kernel raises the next event after ucma_accept() has let this id's
  // handler go on. A server that is told of the next request before its connection is up may give it up
  // (fabtests, ft_complete_connect()).
  std::list<QueuedEvent>& events = context.file->events;
  while (!context.held.empty()) {
    QueuedEvent& event = context.held.front();
    event.response.uid = uid;
    const auto later = std::find_if(events.begin(), events.end(),
                                    [&](const QueuedEvent& other) { return other.number > event.number; });
    events.splice(later, context.held, context.held.begin());
  }
  show_events(*context.file);
}

}  // namespace verbena::rdma_cm
