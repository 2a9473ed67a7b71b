// SPDX-License-Identifier: BSD-2-Clause
#include "verbs.h"

#include "meeting.h"

namespace verbena::network {

ibv_context* open_first_device() {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  if (list == nullptr || count == 0) give_up("no device");
  ibv_context* const context = ibv_open_device(list[0]);
  if (context == nullptr) give_up("ibv_open_device");
  ibv_free_device_list(list);
  return context;
}

void connect_rc(ibv_qp* qp, const ibv_ah_attr& to, uint32_t remote_qpn, uint32_t psn, uint8_t timeout) {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_RTR;
  attr.ah_attr = to;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = remote_qpn;
  attr.rq_psn = attr.sq_psn = psn;
  attr.max_dest_rd_atomic = attr.max_rd_atomic = 1;
  attr.min_rnr_timer = 12;
  attr.timeout = timeout;
  attr.retry_cnt = attr.rnr_retry = 7;
  if (ibv_modify_qp(qp, &attr,
                    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) != 0)
    give_up("RC to RTR");
  attr.qp_state = IBV_QPS_RTS;
  if (ibv_modify_qp(qp, &attr,
                    IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                        IBV_QP_MAX_QP_RD_ATOMIC) != 0)
    give_up("RC to RTS");
}

}  // namespace verbena::network
