// SPDX-License-Identifier: BSD-2-Clause
//
// CREATE_ID, DESTROY_ID, MIGRATE_ID.
#include "observe/log.h"
#include "rdma_cm/call.h"
#include "rdma_cm/events.h"
#include "rdma_cm/open.h"

namespace verbena::rdma_cm {
namespace {

// ucma_get_qp_type. 0: no such port space.
int qp_type_of(const rdma_ucm_create_id& request) {
  switch (request.ps) {
    case RDMA_PS_TCP:
      return IBV_QPT_RC;
    case RDMA_PS_UDP:
    case RDMA_PS_IPOIB:
      return IBV_QPT_UD;
    case RDMA_PS_IB:
      return request.qp_type;
    default:
      return 0;
  }
}

// The context is hidden from now on, and the caller destroys it.
int take_out(Call& call, uint32_t id, Context** out) {
  const std::lock_guard lock(call.state.mutex);
  Context* context = call.state.contexts.find(id);
  if (context == nullptr) return ENOENT;
  if (context->file != call.file) return EINVAL;
  call.state.contexts.hide(id);
  *out = context;
  return 0;
}

}  // namespace

int create_id(Call& call) {
  const auto& request = call.as<rdma_ucm_create_id>();
  const int type = qp_type_of(request);
  if (type == 0) {
    VERBENA_WARN(cm_port_space,
                 "rdma_create_id: there is no port space 0x%x: use one of enum rdma_port_space", request.ps);
    return EINVAL;
  }

  auto context = std::make_unique<Context>();
  context->file = call.file;
  context->uid = request.uid;
  context->space = static_cast<cm::PortSpace>(request.ps);
  context->qp_type = request.qp_type;
  {
    const std::lock_guard lock(call.state.mutex);
    context->id = call.state.contexts.reserve();
  }
  int error = cm::create_id(call.state.service, context->space, static_cast<ibv_qp_type>(type), on_event,
                            context.get(), &context->cm_id);
  const bool made = error == 0;
  const rdma_ucm_create_id_resp response = {.id = context->id};
  if (made) error = call.respond(request.response, response);
  std::list<Context*> entry(1, context.get());

  std::unique_lock lock(call.state.mutex);
  if (error == 0 && call.file->closed) error = EBADF;
  if (error == 0) {
    call.file->contexts.splice(call.file->contexts.end(), entry);
    call.state.contexts.put(context->id, context.get());
    context.release();
    return 0;
  }
  lock.unlock();
  if (made) cm::destroy_id(context->cm_id);
  lock.lock();
  call.state.contexts.release(context->id);
  return error;
}

// librdmacm waits until so many events of the id are acknowledged as the response says.
template <typename Request, typename Response>
int respond_and_expect(Call& call, const char* name, uint64_t uid, const Request& request,
                       const Response& response) {
  const int error = call.respond(request.response, response);
  if (error == 0)
    call.state.acknowledgements.expect(call.state.service, {.call = name,
                                                            .id = uid,
                                                            .object = uid,
                                                            .of_group = false,
                                                            .number = request.id,
                                                            .events_read = response.events_reported});
  return error;
}

int destroy_id(Call& call) {
  const auto& request = call.as<rdma_ucm_destroy_id>();
  Context* context = nullptr;
  if (const int error = take_out(call, request.id, &context); error != 0) return error;
  const uint64_t uid = context->uid;
  const rdma_ucm_destroy_id_resp response = {.events_reported = destroy_context(call.state, context)};
  return respond_and_expect(call, "rdma_destroy_id", uid, request, response);
}

// Moves an id from the file of `fd` to the file that the command is written to. Its events move as well, in
// order and before new ones. Connection requests that were not fetched belong to the listener, and move with
// it.
int migrate_id(Call& call) {
  const auto& request = call.as<rdma_ucm_migrate_id>();
  std::shared_ptr<File> from;
  if (const int error = file_of_descriptor(call.state, static_cast<int>(request.fd), &from); error != 0)
    return error;
  ContextInUse context;
  if (const int error = context.find(call.state, *from, request.id); error != 0) return error;

  rdma_ucm_migrate_resp response = {};
  uint64_t uid = 0;
  {
    const std::lock_guard lock(call.state.mutex);
    if (context->file != from) return EINVAL;  // migrated by another thread, this very moment
    if (call.state.contexts.find(request.id) != context.get()) return ENOENT;
    File& to = *call.file;
    if (to.closed) return EBADF;
    response.events_reported = context->events_reported;
    uid = context->uid;
    if (from != call.file) {
      const auto entry = std::find(from->contexts.begin(), from->contexts.end(), context.get());
      to.contexts.splice(to.contexts.end(), from->contexts, entry);
      for (auto event = from->events.begin(); event != from->events.end();) {
        const auto next = std::next(event);
        if (event->context == context.get()) to.events.splice(to.events.end(), from->events, event);
        event = next;
      }
      context->file = call.file;
      show_events(*from);
      show_events(to);
    }
  }
  return respond_and_expect(call, "rdma_migrate_id", uid, request, response);
}

}  // namespace verbena::rdma_cm
