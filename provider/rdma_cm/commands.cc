// SPDX-License-Identifier: BSD-2-Clause
#include "rdma_cm/commands.h"

#include <iterator>
#include <new>

#include "observe/log.h"
#include "rdma_cm/call.h"

namespace verbena::rdma_cm {
namespace {

struct Command {
  const char* name;
  int (*run)(Call&);
  size_t in_minimum;   // bytes that a request must have
  size_t in_size;      // of the whole structure
  size_t out_minimum;  // of the response; 0: there is none, or the handler looks itself
};

template <typename Request>
constexpr Command of(const char* name, int (*run)(Call&), size_t out = 0, size_t in = sizeof(Request)) {
  return {name, run, in, sizeof(Request), out};
}

// Space for any request, aligned for all.
struct alignas(8) Request {
  uint8_t bytes[512];
};

// Members that were added to ABI version 4 later may be missing: reserved and ECE.
constexpr size_t kEventBeforeEce = offsetof(rdma_ucm_event_resp, reserved);
constexpr size_t kConnectBeforeEce = offsetof(rdma_ucm_connect, ece);
constexpr size_t kAcceptBeforeEce = offsetof(rdma_ucm_accept, ece);
constexpr size_t kRouteBeforeIndex = offsetof(rdma_ucm_query_route_resp, ibdev_index);
constexpr size_t kIdResponse = sizeof(rdma_ucm_create_id_resp);
constexpr size_t kReportedResponse = sizeof(rdma_ucm_destroy_id_resp);

const Command kCommands[] = {
    of<rdma_ucm_create_id>("CREATE_ID", create_id, kIdResponse),
    of<rdma_ucm_destroy_id>("DESTROY_ID", destroy_id, kReportedResponse),
    of<rdma_ucm_bind_ip>("BIND_IP", bind_ip, 0, offsetof(rdma_ucm_bind_ip, id) + 4),
    of<rdma_ucm_resolve_ip>("RESOLVE_IP", resolve_ip),
    of<rdma_ucm_resolve_route>("RESOLVE_ROUTE", resolve_route),
    of<rdma_ucm_query>("QUERY_ROUTE", query_route, kRouteBeforeIndex),
    of<rdma_ucm_connect>("CONNECT", connect, 0, kConnectBeforeEce),
    of<rdma_ucm_listen>("LISTEN", listen),
    of<rdma_ucm_accept>("ACCEPT", accept, 0, kAcceptBeforeEce),
    of<rdma_ucm_reject>("REJECT", reject),
    of<rdma_ucm_disconnect>("DISCONNECT", disconnect),
    of<rdma_ucm_init_qp_attr>("INIT_QP_ATTR", init_qp_attributes, sizeof(ib_uverbs_qp_attr)),
    of<rdma_ucm_get_event>("GET_EVENT", get_event, kEventBeforeEce),
    {"GET_OPTION", nullptr, 0, 0, 0},
    of<rdma_ucm_set_option>("SET_OPTION", set_option),
    of<rdma_ucm_notify>("NOTIFY", notify),
    of<rdma_ucm_join_ip_mcast>("JOIN_IP_MCAST", join_ip_multicast, kIdResponse,
                               offsetof(rdma_ucm_join_ip_mcast, id) + 4),
    of<rdma_ucm_destroy_id>("LEAVE_MCAST", leave_multicast, kReportedResponse),
    of<rdma_ucm_migrate_id>("MIGRATE_ID", migrate_id),
    of<rdma_ucm_query>("QUERY", query),
    of<rdma_ucm_bind>("BIND", bind_address),
    of<rdma_ucm_resolve_addr>("RESOLVE_ADDR", resolve_address),
    of<rdma_ucm_join_mcast>("JOIN_MCAST", join_multicast, kIdResponse),
    {"RESOLVE_IB_SERVICE", nullptr, 0, 0, 0},  // a query to a subnet manager, which there is none of
    of<WriteCmEvent>("WRITE_CM_EVENT", write_event),
};
static_assert(std::size(kCommands) == kWriteCmEvent + 1);

int run(State& state, const std::shared_ptr<File>& file, const void* command, size_t length, bool has_token,
        const char** name) {
  if (file->read_only) return EBADF;
  rdma_ucm_cmd_hdr header;
  if (length < sizeof header) return EINVAL;
  if (const int error = copy_from_program(&header, command, sizeof header); error != 0) return error;
  if (header.cmd >= std::size(kCommands)) return EINVAL;
  const Command& known = kCommands[header.cmd];
  *name = known.name;
  if (header.in + sizeof header > length) return EINVAL;
  if (known.run == nullptr) return ENOSYS;
  if (header.out < known.out_minimum) return ENOSPC;
  if (header.in < known.in_minimum) return EINVAL;

  Request request = {};
  const size_t given = std::min<size_t>(header.in, known.in_size);
  const auto* payload = static_cast<const uint8_t*>(command) + sizeof header;
  if (const int error = copy_from_program(&request, payload, given); error != 0) return error;
  Call call{state, file, &request, header.out, has_token};
  try {
    int error = 0;
    if (state.machine != nullptr &&
        state.machine->carry_out(call, header.cmd, &request, known.in_size, &error))
      return error;
    return known.run(call);
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
}

}  // namespace

int run_command(State& state, const std::shared_ptr<File>& file, const void* command, size_t length,
                bool has_token) {
  const char* name = "of a number that is none";
  const int error = run(state, file, command, length, has_token, &name);
  if (error > 0 && error != EAGAIN) VERBENA_WARN(cm_command, "rdma_cm: command %s: errno %d", name, error);
  return error;
}

int Call::find_with_device(uint32_t id, ContextInUse* context) const {
  if (const int error = find(id, context); error != 0) return error;
  if ((*context)->is_on_machine) return 0;  // the kernel knows
  cm::Route route = {};
  cm::query((*context)->cm_id, &route);
  return route.has_device ? 0 : EINVAL;
}

}  // namespace verbena::rdma_cm
