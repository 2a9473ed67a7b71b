// SPDX-License-Identifier: BSD-2-Clause
//
// BIND_IP, BIND, RESOLVE_IP, RESOLVE_ADDR, RESOLVE_ROUTE: the family gives the length of an address.
#include "rdma_cm/addresses.h"
#include "rdma_cm/call.h"

namespace verbena::rdma_cm {

int bind_ip(Call& call) {
  const auto& request = call.as<rdma_ucm_bind_ip>();
  if (ip_address_size(request.addr) == 0) return EINVAL;
  ContextInUse context;
  if (const int error = call.find(request.id, &context); error != 0) return error;
  return cm::bind_address(context->cm_id, as_sockaddr(request.addr));
}

int bind_address(Call& call) {
  const auto& request = call.as<rdma_ucm_bind>();
  if (request.reserved != 0 || request.addr_size == 0) return EINVAL;
  if (request.addr_size != address_size(request.addr.ss_family)) return EINVAL;
  ContextInUse context;
  if (const int error = call.find(request.id, &context); error != 0) return error;
  return cm::bind_address(context->cm_id, as_sockaddr(request.addr));
}

int resolve_ip(Call& call) {
  const auto& request = call.as<rdma_ucm_resolve_ip>();
  const bool has_source = request.src_addr.sin6_family != AF_UNSPEC;
  if (has_source && ip_address_size(request.src_addr) == 0) return EINVAL;
  if (ip_address_size(request.dst_addr) == 0) return EINVAL;
  ContextInUse context;
  if (const int error = call.find(request.id, &context); error != 0) return error;
  return cm::resolve_address(context->cm_id, has_source ? as_sockaddr(request.src_addr) : nullptr,
                             as_sockaddr(request.dst_addr), request.timeout_ms);
}

int resolve_address(Call& call) {
  const auto& request = call.as<rdma_ucm_resolve_addr>();
  if (request.reserved != 0 || request.dst_size == 0) return EINVAL;
  if (request.src_size != 0 && request.src_size != address_size(request.src_addr.ss_family)) return EINVAL;
  if (request.dst_size != address_size(request.dst_addr.ss_family)) return EINVAL;
  ContextInUse context;
  if (const int error = call.find(request.id, &context); error != 0) return error;
  const bool has_source = request.src_size != 0 && request.src_addr.ss_family != AF_UNSPEC;
  return cm::resolve_address(context->cm_id, has_source ? as_sockaddr(request.src_addr) : nullptr,
                             as_sockaddr(request.dst_addr), request.timeout_ms);
}

int resolve_route(Call& call) {
  const auto& request = call.as<rdma_ucm_resolve_route>();
  ContextInUse context;
  if (const int error = call.find_with_device(request.id, &context); error != 0) return error;
  return cm::resolve_route(context->cm_id, request.timeout_ms);
}

}  // namespace verbena::rdma_cm
