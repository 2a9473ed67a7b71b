// SPDX-License-Identifier: BSD-2-Clause
//
// JOIN_IP_MCAST, JOIN_MCAST, LEAVE_MCAST.
#include <cstring>

#include "rdma_cm/addresses.h"
#include "rdma_cm/call.h"

namespace verbena::rdma_cm {
namespace {

struct Join {
  uint64_t response;
  uint64_t uid;
  uint32_t id;
  const sockaddr* group;
  size_t size;
  bool send_only;
};

// Removes the membership from its context, with the events that have not been fetched. Under the mutex.
void forget(State& state, Multicast* multicast) {
  Context& context = *multicast->context;
  const uint64_t serial = multicast->serial;
  context.file->events.remove_if([serial](const QueuedEvent& event) { return event.multicast == serial; });
  show_events(*context.file);
  state.multicasts.release(multicast->id);
  context.multicasts.remove_if([multicast](const auto& entry) { return entry.get() == multicast; });
}

int enter(Call& call, Context& context, Multicast* multicast, const Join& join) {
  if (context.is_on_machine) return call.state.machine->join(call.state, *multicast, join.send_only);
  return cm::join_multicast(context.cm_id, join.group, join.send_only,
                            reinterpret_cast<void*>(static_cast<uintptr_t>(multicast->serial)));
}

void leave(Call& call, Context& context, const Multicast& multicast) {
  if (context.is_on_machine) return call.state.machine->leave(multicast);
  cm::leave_multicast(context.cm_id, reinterpret_cast<const sockaddr*>(&multicast.group));
}

int process_join(Call& call, const Join& join) {
  ContextInUse context;
  if (const int error = call.find_with_device(join.id, &context); error != 0) return error;

  std::list<std::unique_ptr<Multicast>> entry;
  entry.push_back(std::make_unique<Multicast>());
  Multicast* multicast = entry.front().get();
  multicast->context = context.get();
  multicast->uid = join.uid;
  memcpy(&multicast->group, join.group, join.size);
  {
    const std::lock_guard lock(call.state.mutex);
    multicast->id = call.state.multicasts.reserve();
    multicast->serial = call.state.next_serial++;
    context->multicasts.splice(context->multicasts.end(), entry);
  }
  const rdma_ucm_create_id_resp response = {.id = multicast->id};
  int error = enter(call, *context.get(), multicast, join);
  const bool joined = error == 0;
  if (joined) error = call.respond(join.response, response);
  if (joined && error != 0) leave(call, *context.get(), *multicast);
  const std::lock_guard lock(call.state.mutex);
  if (error != 0) return forget(call.state, multicast), error;
  multicast->is_known = true;
  call.state.multicasts.put(multicast->id, multicast);
  return 0;
}

}  // namespace

int join_ip_multicast(Call& call) {
  const auto& request = call.as<rdma_ucm_join_ip_mcast>();
  const size_t size = ip_address_size(request.addr);
  if (size == 0) return EINVAL;
  return process_join(call, {.response = request.response,
                             .uid = request.uid,
                             .id = request.id,
                             .group = as_sockaddr(request.addr),
                             .size = size,
                             .send_only = false});
}

int join_multicast(Call& call) {
  const auto& request = call.as<rdma_ucm_join_mcast>();
  const size_t size = address_size(request.addr.ss_family);
  if (size == 0 || request.addr_size != size) return EINVAL;
  if (request.join_flags >= RDMA_MC_JOIN_FLAG_RESERVED) return EINVAL;
  return process_join(call, {.response = request.response,
                             .uid = request.uid,
                             .id = request.id,
                             .group = as_sockaddr(request.addr),
                             .size = size,
                             .send_only = request.join_flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER});
}

// ENXIO: the id of the membership is being destroyed.
int leave_multicast(Call& call) {
  const auto& request = call.as<rdma_ucm_destroy_id>();
  ContextInUse context;
  Multicast* multicast = nullptr;
  {
    const std::lock_guard lock(call.state.mutex);
    multicast = call.state.multicasts.find(request.id);
    if (multicast == nullptr || !multicast->is_known) return ENOENT;
    Context* owner = multicast->context;
    if (owner->file != call.file) return EINVAL;
    if (call.state.contexts.find(owner->id) != owner) return ENXIO;
    call.state.multicasts.hide(request.id);
    context.take(call.state, owner);
  }
  leave(call, *context.get(), *multicast);
  rdma_ucm_destroy_id_resp response = {};
  AcknowledgementWatch::Wait wait = {};
  {
    const std::lock_guard lock(call.state.mutex);
    response.events_reported = multicast->events_reported;
    wait = {.call = "rdma_leave_multicast",
            .id = context->uid,
            .object = multicast->uid,
            .of_group = true,
            .number = request.id,
            .events_read = response.events_reported};
    forget(call.state, multicast);
  }
  const int error = call.respond(request.response, response);
  if (error == 0) call.state.acknowledgements.expect(call.state.service, wait);
  return error;
}

}  // namespace verbena::rdma_cm
