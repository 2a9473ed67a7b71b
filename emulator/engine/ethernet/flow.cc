// SPDX-License-Identifier: BSD-2-Clause
//
// ibv_create_flow(3), ibv_destroy_flow(3).
#include "engine/ethernet/flow.h"

#include <errno.h>

#include <new>

#include "emulator.h"
#include "engine/objects/context.h"
#include "engine/objects/process.h"
#include "engine/objects/qp.h"
#include "engine/rules/flow_specs.h"
#include "engine/rules/privilege.h"
#include "observe/log.h"

namespace verbena {
namespace {

// The order of the kernel's checks (uverbs_cmd.c, ib_uverbs_ex_create_flow()).
int check_flow(const Qp& qp, const ibv_flow_attr& attr, ParsedFlow* parsed, const char** why) {
  const auto refuse_with = [&](int error, const char* reason) {
    *why = reason;
    return error;
  };
  if (qp.context->device->limits.max_flow == 0 || qp.context->device->link_layer != LinkLayer::kEthernet)
    return refuse_with(EOPNOTSUPP, "the device has no flow steering");
  if (!may_use_raw_packets()) return refuse_with(EPERM, "rules need CAP_NET_RAW");
  if (qp.type == IBV_QPT_UD) return refuse_with(EOPNOTSUPP, "datagrams of RoCE are not steered by rules");
  if (qp.type != IBV_QPT_RAW_PACKET) return refuse_with(EINVAL, "only raw packet QPs have rules");
  return parse_flow(attr, qp.context->device->count_ports(), parsed, why);
}

}  // namespace

int create_flow(Qp* qp, const ibv_flow_attr* attr, SteeredFlow** out) {
  if (int error = usable(*qp->context); error != 0) return error;
  ParsedFlow parsed;
  const char* why = nullptr;
  if (int error = check_flow(*qp, *attr, &parsed, &why); error != 0) {
    VERBENA_WARN(flow, "ibv_create_flow: QP 0x%06x: type %u, %u specifications, size %u, flags 0x%x: %s",
                 qp->shared->qpn, static_cast<unsigned>(attr->type), attr->num_of_specs, attr->size,
                 attr->flags, why);
    return error;
  }
  auto* flow = new (std::nothrow) SteeredFlow;
  if (flow == nullptr) return ENOMEM;
  flow->context = qp->context;
  flow->qp = qp;
  if (parsed.counters != nullptr)
    flow->counters = reinterpret_cast<const CountersOfProgram*>(parsed.counters)->emulated;
  const NodeMembership& membership = qp->process->membership();
  parsed.rule.device = qp->context->device_index;
  parsed.rule.qp = {membership.slot(), membership.generation(), qp->index, qp->shared->incarnation};
  qp->flows.fetch_add(1, std::memory_order_relaxed);
  const auto limit = static_cast<uint32_t>(qp->context->device->limits.max_flow);
  int error = FlowTable(qp->process->directory()).add(parsed.rule, limit, &flow->handle);
  if (error == 0) {
    try {
      bind_counters(*flow);
    } catch (const std::bad_alloc&) {
      error = ENOMEM;
      FlowTable(qp->process->directory()).end(flow->handle);
      FlowTable(qp->process->directory()).free_entry(flow->handle);
    }
  }
  if (error != 0) {
    VERBENA_WARN(limit_reached, "ibv_create_flow: QP 0x%06x: the device has %u rules at most",
                 qp->shared->qpn, limit);
    qp->flows.fetch_sub(1, std::memory_order_relaxed);
    delete flow;
    return error;
  }
  *out = flow;
  return 0;
}

int destroy_flow(SteeredFlow* flow) {
  Qp& qp = *flow->qp;
  Process& process = *qp.process;
  if (!process.dead()) {
    const FlowTable table(process.directory());
    table.end(flow->handle);
    process.wait_for_hazards({"ibv_destroy_flow", "QP", qp.shared->qpn, true});
    unbind_counters(*flow);
    table.free_entry(flow->handle);
  }
  qp.flows.fetch_sub(1, std::memory_order_release);
  delete flow;
  return 0;
}

}  // namespace verbena
