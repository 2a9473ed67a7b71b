// SPDX-License-Identifier: BSD-2-Clause
#include "engine/events/async_events.h"

#include <algorithm>
#include <vector>

#include "engine/objects/context.h"
#include "engine/objects/cq.h"
#include "engine/objects/process.h"
#include "engine/objects/qp.h"
#include "engine/objects/srq.h"
#include "fabric/kick.h"
#include "fabric/xrc_domains.h"
#include "observe/log.h"
#include "observe/observer.h"

namespace verbena {
namespace {

// struct ib_uverbs_async_event_desc (kernel, include/uapi/rdma/ib_user_verbs.h).
struct EventRecord {
  uint64_t element;
  uint32_t event_type;
  uint32_t reserved;
};
static_assert(sizeof(EventRecord) == 16);

// True: the element of the event is the handle of an object; false: it is a port number.
bool concerns_object(uint32_t type) {
  return type <= IBV_EVENT_PATH_MIG_ERR || type == IBV_EVENT_SRQ_ERR || type == IBV_EVENT_SRQ_LIMIT_REACHED ||
         type == IBV_EVENT_QP_LAST_WQE_REACHED || type == IBV_EVENT_WQ_FATAL;
}

// False: the pipe is full, since the program does not read the descriptor. The event is lost.
bool write_event(Context& context, uint64_t element, ibv_event_type type) {
  const EventRecord record{element, static_cast<uint32_t>(type), 0};
  if (context.events.write(&record, sizeof record) == 0) return true;
  VERBENA_WARN(event_lost, "asynchronous event %d is lost: nobody reads the descriptor", type);
  return false;
}

void tell_observer(uint32_t qpn, ibv_event_type type) {
  if (Observer* const seen = observer(); seen != nullptr) [[unlikely]]
    seen->on_event({qpn, static_cast<uint8_t>(type)});
}

// XRC_RECV: tells the other processes that hold the queue pair open.
void tell_holders(Qp& qp, ibv_event_type type) {
  std::atomic<uint64_t>& told = qp.shared->events_told;
  told.store(ToldEvents::with(told.load(std::memory_order_relaxed), static_cast<uint8_t>(type)),
             std::memory_order_release);
  const Process& process = *qp.process;
  for_each_holder(process.directory(), qp.shared->qpn, [&](uint32_t slot, uint32_t generation) {
    kick_slot(process.directory(), qp.process->membership().node(), slot, generation);
  });
}

// XRC_RECV: raises the event at every handle of this process. The owner also tells the other processes.
void raise_event_at_handles(Qp& qp, ibv_event_type type) {
  {
    std::lock_guard handles(qp.handles_mutex);
    for (QpHandle& handle : qp.handles) {
      std::lock_guard lock(handle.context->events_mutex);
      if (write_event(*handle.context, handle.user_handle, type)) ++handle.async_events;
    }
  }
  if (qp.proxy == nullptr) tell_holders(qp, type);
}

}  // namespace

void raise_qp_event(Qp& qp, ibv_event_type type) {
  // Of the events of queue pairs, a work queue has one (ibv_get_async_event(3)).
  if (qp.is_work_queue) {
    if (type != IBV_EVENT_QP_FATAL) return;
    type = IBV_EVENT_WQ_FATAL;
  }
  tell_observer(qp.shared->qpn, type);
  if (qp.xrcd != nullptr) {
    raise_event_at_handles(qp, type);
    return;
  }
  std::lock_guard lock(qp.context->events_mutex);
  if (write_event(*qp.context, qp.user_handle, type)) qp.async_events.fetch_add(1, std::memory_order_relaxed);
}

void raise_cq_event(Cq& cq, ibv_event_type type) {
  tell_observer(0, type);
  std::lock_guard lock(cq.context->events_mutex);
  if (write_event(*cq.context, cq.user_handle, type)) cq.async_events.fetch_add(1, std::memory_order_relaxed);
}

void raise_port_event(Context& context, uint32_t port, ibv_event_type type) {
  tell_observer(0, type);
  std::lock_guard lock(context.events_mutex);
  write_event(context, port, type);
}

void raise_srq_event(Srq& srq, ibv_event_type type) {
  tell_observer(0, type);
  std::lock_guard lock(srq.context->events_mutex);
  if (write_event(*srq.context, srq.user_handle, type))
    srq.async_events.fetch_add(1, std::memory_order_relaxed);
}

uint32_t take_back_events(Context& context, uint64_t user_handle, uint32_t raised) {
  if (raised == 0) return 0;
  std::lock_guard lock(context.events_mutex);
  std::vector<EventRecord> others;
  EventRecord record;
  uint32_t unread = 0;
  while (context.events.read(&record, sizeof record)) {
    if (concerns_object(record.event_type) && record.element == user_handle)
      ++unread;
    else
      others.push_back(record);
  }
  for (const EventRecord& other : others) context.events.write(&other, sizeof other);
  return raised - std::min(raised, unread);
}

}  // namespace verbena
