/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

/* What each end tells the other one: the number of its queue pair, and the PSN of its first request. */
static const uint32_t first_psn[2] = {100, 200};

static void connect_end(int end) {
  const int peer = 1 - end;
  struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR,
                            .path_mtu = IBV_MTU_1024,
                            .dest_qp_num = qp[peer]->qp_num,
                            .rq_psn = first_psn[wrong ? end : peer],
                            .max_dest_rd_atomic = 1,
                            .min_rnr_timer = 1,
                            .ah_attr = address()};
  struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS,
                            .sq_psn = first_psn[end],
                            .timeout = 10,
                            .retry_cnt = 3,
                            .rnr_retry = 7,
                            .max_rd_atomic = 1};
  NEED(ibv_modify_qp(qp[end], &rtr,
                     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
  NEED(ibv_modify_qp(qp[end], &rts,
                     IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                         IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

int main(int argc, char** argv) {
  start(argc, argv);
  open_pair_in_init();
  connect_end(0);
  connect_end(1);
  struct ibv_wc wc;
  NEED(receive_bytes(qp[1], 0, buf + kSize, 64) == 0 && send_bytes(qp[0], buf, 32) == 0);
  NEED(poll_one(cq, &wc, 5000) && poll_one(cq, &wc, 5000));
  close_all();
  printf("the message has arrived\n");
  return 0;
}
