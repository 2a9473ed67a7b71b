// SPDX-License-Identifier: BSD-2-Clause
//
// LISTEN, CONNECT, ACCEPT, REJECT, DISCONNECT, INIT_QP_ATTR, NOTIFY.
#include "rdma_cm/call.h"
#include "rdma_cm/events.h"
#include "rdma_cm/translate.h"

namespace verbena::rdma_cm {
namespace {

constexpr uint32_t kMaxBacklog = 1024;  // net.rdma_ucm.max_backlog, as it comes

// enum ib_cm_rej_reason (include/rdma/ib_cm.h); what ucma_reject lets pass.
constexpr uint8_t kRejectConsumerDefined = 28;
constexpr uint8_t kRejectVendorOption = 35;

// The Q_Key of a connection parameter counts with AF_IB only (ucma_copy_conn_param).
cm::ConnectionParameters parameters_of(const Context& context, const rdma_ucm_conn_param& from) {
  cm::ConnectionParameters to = from_request(from);
  cm::Route route = {};
  cm::query(context.cm_id, &route);
  if (route.source.ss_family != AF_IB) to.qkey = 0;
  return to;
}

}  // namespace

int listen(Call& call) {
  const auto& request = call.as<rdma_ucm_listen>();
  ContextInUse context;
  if (const int error = call.find(request.id, &context); error != 0) return error;
  const bool in_range = request.backlog > 0 && request.backlog <= kMaxBacklog;
  const uint32_t backlog = in_range ? request.backlog : kMaxBacklog;
  {
    const std::lock_guard lock(call.state.mutex);
    context->backlog = backlog;
  }
  const int error = cm::listen(context->cm_id, static_cast<int>(backlog));
  if (error != 0 || call.state.machine == nullptr) return error;
  cm::Route route = {};
  cm::query(context->cm_id, &route);
  return call.state.machine->listen_as_well(call.state, *context.get(), route.source, backlog);
}

int connect(Call& call) {
  const auto& request = call.as<rdma_ucm_connect>();
  if (request.conn_param.valid == 0) return EINVAL;
  ContextInUse context;
  if (const int error = call.find_with_device(request.id, &context); error != 0) return error;
  return cm::connect(context->cm_id, parameters_of(*context.get(), request.conn_param),
                     from_request(request.ece));
}

// From here on the program gets events of the id, with the uid that it passes. Events that come between the
// connection manager's success and this point are kept: a peer may be very fast.
int accept(Call& call) {
  const auto& request = call.as<rdma_ucm_accept>();
  ContextInUse context;
  if (const int error = call.find_with_device(request.id, &context); error != 0) return error;
  const cm::Ece ece = from_request(request.ece);
  if (request.conn_param.valid == 0) return cm::accept(context->cm_id, nullptr, ece);

  const cm::ConnectionParameters parameters = parameters_of(*context.get(), request.conn_param);
  {
    const std::lock_guard lock(call.state.mutex);
    context->accepting = true;
  }
  const int error = cm::accept(context->cm_id, &parameters, ece);
  const std::lock_guard lock(call.state.mutex);
  settle_accept(*context.get(), error == 0, request.uid);
  return error;
}

int reject(Call& call) {
  const auto& request = call.as<rdma_ucm_reject>();
  const uint8_t reason = request.reason != 0 ? request.reason : kRejectConsumerDefined;
  if (reason != kRejectConsumerDefined && reason != kRejectVendorOption) return EINVAL;
  ContextInUse context;
  if (const int error = call.find_with_device(request.id, &context); error != 0) return error;
  return cm::reject(context->cm_id, private_data(request.private_data, request.private_data_len), reason);
}

int disconnect(Call& call) {
  ContextInUse context;
  if (const int error = call.find_with_device(call.as<rdma_ucm_disconnect>().id, &context); error != 0)
    return error;
  return cm::disconnect(context->cm_id);
}

int init_qp_attributes(Call& call) {
  const auto& request = call.as<rdma_ucm_init_qp_attr>();
  if (request.qp_state > IBV_QPS_ERR) return EINVAL;
  ContextInUse context;
  if (const int error = call.find_with_device(request.id, &context); error != 0) return error;
  ibv_qp_attr attr = {};
  attr.qp_state = static_cast<ibv_qp_state>(request.qp_state);
  int mask = 0;
  if (const int error = cm::init_qp_attributes(context->cm_id, &attr, &mask); error != 0) return error;
  return call.respond(request.response, to_response(attr, mask));
}

int notify(Call& call) {
  const auto& request = call.as<rdma_ucm_notify>();
  ContextInUse context;
  if (const int error = call.find_with_device(request.id, &context); error != 0) return error;
  return cm::notify(context->cm_id, static_cast<ibv_event_type>(request.event));
}

}  // namespace verbena::rdma_cm
