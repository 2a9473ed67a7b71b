// SPDX-License-Identifier: BSD-2-Clause
#include "verbs/handles.h"
#include "verbs/objects.h"
#include "verbs/ops.h"

namespace verbena::verbs {

ibv_flow* create_flow(ibv_qp* qp, ibv_flow_attr* attr) {
  if (const int error = check_handles("ibv_create_flow", qp); error != 0) return refuse(error);
  auto* flow = allocate<VerbsFlow>();
  if (flow == nullptr) return nullptr;
  if (const int error = verbena::create_flow(to_qp(qp)->emulated, attr, &flow->emulated); error != 0)
    return refuse(flow, error);
  flow->base.context = qp->context;
  return &flow->base;
}

int destroy_flow(ibv_flow* flow) {
  if (const int error = verbena::destroy_flow(to_flow(flow)->emulated); error != 0) return answer(error);
  free(to_flow(flow));
  return 0;
}

ibv_counters* create_counters(ibv_context* context, ibv_counters_init_attr* attr) {
  auto* counters = allocate<VerbsCounters>();
  if (counters == nullptr) return nullptr;
  const int error = verbena::create_counters(to_context(context)->emulated, attr, &counters->emulated);
  if (error != 0) return refuse(counters, error);
  counters->base.context = context;
  return &counters->base;
}

int destroy_counters(ibv_counters* counters) {
  if (const int error = verbena::destroy_counters(to_counters(counters)->emulated); error != 0)
    return answer(error);
  free(to_counters(counters));
  return 0;
}

int attach_counters_point_flow(ibv_counters* counters, ibv_counter_attach_attr* attr, ibv_flow* flow) {
  return answer(verbena::attach_counters(to_counters(counters)->emulated, attr, flow));
}

int read_counters(ibv_counters* counters, uint64_t* values, uint32_t count, uint32_t flags) {
  return answer(verbena::read_counters(to_counters(counters)->emulated, values, count, flags));
}

}  // namespace verbena::verbs
