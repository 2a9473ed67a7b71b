// SPDX-License-Identifier: BSD-2-Clause
//
// ibv_modify_qp(3).
#include <errno.h>

#include "check/operations.h"
#include "engine/rules/qp_state_table.h"

namespace verbena::check {
namespace {

std::string names_of(int bits) {
  std::string names;
  for (int bit = 1; bit > 0 && bit <= bits; bit <<= 1)
    if ((bits & bit) != 0) names += (names.empty() ? "" : ", ") + std::string(name_of_attribute_bit(bit));
  return names;
}

void explain(const QueuePair& qp, const ibv_qp_attr& attr, int mask, int error, const Stack& stack) {
  std::string reason = take_reason();
  const ibv_qp_state next = (mask & IBV_QP_STATE) != 0 ? attr.qp_state : qp.state;
  const std::string step = qp.name + text(": from %s to %s", name_of_state(qp.state), name_of_state(next));
  const Call called = {"called here", keep_stack(stack)};
  int bits = 0;
  if (error == EINVAL && check_transition(qp.type, qp.state, next, mask, &bits) != 0) {
    const Transition transition = find_transition(qp.type, qp.state, next);
    if (!transition.legal)
      report(rule("qp-transition"), step, {called, {"the last transition was here", qp.modified}});
    else if ((bits & transition.required & ~mask) != 0)
      report(rule("qp-attributes-missing"), step + " without " + names_of(bits), {called});
    else
      report(rule("qp-attributes-superfluous"), step + " with " + names_of(bits), {called});
    return;
  }
  if (error != EINVAL && error != EOPNOTSUPP && error != EPERM) return;
  report(rule("call-refused"), reason.empty() ? step : reason, {called});
}

// Of a port, in bytes. 0: not known.
uint32_t mtu_of(ibv_context* context, uint8_t number) {
  ibv_port_attr port = {};
  return below().query_port(context, number, &port) == 0 ? bytes_of(port.active_mtu) : 0;
}

// `port_mtu`: of the port that it is bound to now, in bytes, or 0.
void note(QueuePair& qp, const ibv_qp_attr& attr, int mask, uint32_t port_mtu, const Stack& stack) {
  const StackId here = keep_stack(stack);
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) {
    qp.max_rd_atomic = attr.max_rd_atomic;
    qp.knows_rd_atomic = true;
  }
  if ((mask & IBV_QP_PATH_MTU) != 0) qp.mtu = bytes_of(attr.path_mtu);
  if (port_mtu != 0) qp.mtu = port_mtu;
  if ((mask & IBV_QP_TIMEOUT) != 0 && attr.timeout == 0 && qp.type == IBV_QPT_RC)
    report(rule("timeout-endless"), qp.name, {{"modified here", here}});
  if ((mask & IBV_QP_STATE) == 0) return;
  qp.state = attr.qp_state;
  qp.modified = here;
  qp.failed = false;
  if (attr.qp_state != IBV_QPS_RTS) qp.peer_rd_atomic = -1;
  if (attr.qp_state == IBV_QPS_RTR) qp.got_ready = true;
  if (attr.qp_state == IBV_QPS_RESET) {
    qp.knows_rd_atomic = false;
    forget_requests(qp);
  }
}

int modify_qp(ibv_qp* ibv, ibv_qp_attr* attr, int mask) {
  const Stack stack = capture_stack();
  if (!is_usable(ibv, "ibv_modify_qp", stack)) return errno = EINVAL;
  const int error = below().modify_qp(ibv, attr, mask);
  const int before = errno;
  const bool finds_port = error == 0 && ibv->qp_type == IBV_QPT_UD && (mask & IBV_QP_PORT) != 0;
  const uint32_t port_mtu = finds_port ? mtu_of(ibv->context, attr->port_num) : 0;
  {
    const Locked locked;
    if (auto* const qp = find<QueuePair>(ibv); qp != nullptr) {
      if (error != 0)
        explain(*qp, *attr, mask, error, stack);
      else
        note(*qp, *attr, mask, port_mtu, stack);
    }
  }
  errno = before;
  return error;
}

int query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init) {
  if (!is_usable(qp, "ibv_query_qp", capture_stack())) return errno = EINVAL;
  return below().query_qp(qp, attr, mask, init);
}

}  // namespace

void check_transitions(rdma_core::ContextOps& table) {
  table.modify_qp = modify_qp;
  table.query_qp = query_qp;
}

}  // namespace verbena::check
