// SPDX-License-Identifier: BSD-2-Clause
//
// QUERY_ROUTE, QUERY.
#include <iterator>

#include "rdma_cm/call.h"
#include "rdma_cm/translate.h"

namespace verbena::rdma_cm {
namespace {

// librdmacm has ibdev_index since rdma-core 26.
constexpr size_t kAddressBeforeIndex = offsetof(rdma_ucm_query_addr_resp, ibdev_index);

int answer_address(const Call& call, uint64_t where, const Context&, const cm::Route& route) {
  if (call.room < kAddressBeforeIndex) return ENOSPC;
  return call.respond(where, address_response(route));
}

// As many paths as fit. As in the kernel, a path that would fill the response exactly is left out.
int answer_path(const Call& call, uint64_t where, const Context&, const cm::Route& route) {
  if (call.room < sizeof(rdma_ucm_query_path_resp)) return ENOSPC;
  struct {
    uint32_t num_paths;  // struct rdma_ucm_query_path_resp
    uint32_t reserved;
    ib_path_rec_data paths[2];
  } response = {};
  response.num_paths = route.path_count;
  size_t size = sizeof(rdma_ucm_query_path_resp);
  static_assert(sizeof response == sizeof(rdma_ucm_query_path_resp) + sizeof response.paths);
  for (uint32_t i = 0; i < route.path_count && i < 2; ++i) {
    if (call.room - size <= sizeof response.paths[i]) break;
    response.paths[i] = path_response(route.paths[i]);
    size += sizeof response.paths[i];
  }
  return copy_to_program(where, &response, size);
}

int answer_gid(const Call& call, uint64_t where, const Context& context, const cm::Route& route) {
  if (call.room < kAddressBeforeIndex) return ENOSPC;
  return call.respond(where, gid_response(route, context.space));
}

using Answer = int (*)(const Call&, uint64_t, const Context&, const cm::Route&);
constexpr Answer kAnswers[] = {answer_address, answer_path, answer_gid};  // by RDMA_USER_CM_QUERY_*

}  // namespace

int query_route(Call& call) {
  const auto& request = call.as<rdma_ucm_query>();
  ContextInUse context;
  if (const int error = call.find(request.id, &context); error != 0) return error;
  cm::Route route = {};
  cm::query(context->cm_id, &route);
  return call.respond(request.response, route_response(route));
}

int query(Call& call) {
  const auto& request = call.as<rdma_ucm_query>();
  ContextInUse context;
  if (const int error = call.find(request.id, &context); error != 0) return error;
  if (request.option >= std::size(kAnswers)) return ENOSYS;
  cm::Route route = {};
  cm::query(context->cm_id, &route);
  return kAnswers[request.option](call, request.response, *context.get(), route);
}

}  // namespace verbena::rdma_cm
