// SPDX-License-Identifier: BSD-2-Clause
#include "cm/connection_qp.h"

#include <errno.h>

namespace verbena::cm {
namespace {

bool answers_reads(ibv_qp_type type) { return type == IBV_QPT_RC || type == IBV_QPT_XRC_RECV; }
bool asks_reads(ibv_qp_type type) { return type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND; }
bool is_acknowledged(ibv_qp_type type) { return answers_reads(type) || asks_reads(type); }

// cma.c: cma_ib_init_qp_attr. No access flags yet: these come with the connection.
void without_connection(const QpFacts& facts, ibv_qp_attr* attr, int* mask) {
  *mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
  attr->pkey_index = facts.pkey_index;
  attr->port_num = facts.port;
  if (facts.type == IBV_QPT_UD) {
    *mask |= IBV_QP_QKEY;
    attr->qkey = facts.qkey;
  } else {
    *mask |= IBV_QP_ACCESS_FLAGS;
    attr->qp_access_flags = 0;
  }
}

// cm.c: cm_init_qp_init_attr
void init(const QpFacts& facts, ibv_qp_attr* attr, int* mask) {
  *mask = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
  attr->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  if (facts.responder_resources != 0)
    attr->qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  attr->pkey_index = facts.pkey_index;
  attr->port_num = facts.port;
}

// cm.c: cm_init_qp_rtr_attr
void ready_to_receive(const QpFacts& facts, ibv_qp_attr* attr, int* mask) {
  *mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  attr->ah_attr = facts.address;
  attr->path_mtu = static_cast<ibv_mtu>(facts.path_mtu);
  attr->dest_qp_num = facts.remote_qpn;
  attr->rq_psn = facts.receive_psn;
  if (!answers_reads(facts.type)) return;
  *mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  attr->max_dest_rd_atomic = facts.responder_resources;
  attr->min_rnr_timer = 0;  // 655.36 ms
}

// cm.c: cm_init_qp_rts_attr
void ready_to_send(const QpFacts& facts, ibv_qp_attr* attr, int* mask) {
  *mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  attr->sq_psn = facts.send_psn & 0xffffff;
  if (asks_reads(facts.type)) {
    *mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    attr->retry_cnt = facts.retry_count;
    attr->rnr_retry = facts.rnr_retry_count;
    attr->max_rd_atomic = facts.initiator_depth;
  }
  if (!is_acknowledged(facts.type)) return;
  *mask |= IBV_QP_TIMEOUT;
  attr->timeout = facts.ack_timeout_is_set ? facts.set_ack_timeout : facts.ack_timeout;
}

struct Step {
  ibv_qp_state to;
  Exchange from;  // the exchange must have come as far as this
  void (*fill)(const QpFacts& facts, ibv_qp_attr* attr, int* mask);
};
constexpr Step kSteps[] = {
    {IBV_QPS_INIT, Exchange::kRequestSent, init},
    {IBV_QPS_RTR, Exchange::kOpen, ready_to_receive},
    {IBV_QPS_RTS, Exchange::kOpen, ready_to_send},
};

}  // namespace

int connection_qp_attributes(const QpFacts& facts, ibv_qp_attr* attr, int* mask) {
  if (facts.exchange == Exchange::kNone || facts.type == IBV_QPT_UD) {
    without_connection(facts, attr, mask);
    return 0;
  }
  if (facts.exchange == Exchange::kOver) return EINVAL;
  for (const Step& step : kSteps) {
    if (step.to != attr->qp_state) continue;
    if (facts.exchange < step.from) return EINVAL;
    step.fill(facts, attr, mask);
    return 0;
  }
  return EINVAL;
}

}  // namespace verbena::cm
