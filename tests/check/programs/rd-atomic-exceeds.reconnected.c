/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

static void change_both(enum ibv_qp_state state) {
  struct ibv_qp_attr attr = {.qp_state = state};
  for (int i = 0; i < 2; ++i) NEED(ibv_modify_qp(qp[i], &attr, IBV_QP_STATE) == 0);
}

/* The second connection serves more than the first; its other end is not there when the request is posted. */
int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  struct ibv_sge sge = sge_of(buf, 32);
  struct ibv_send_wr wr = remote_wr(&sge, IBV_WR_RDMA_READ);
  NEED(post(qp[0], &wr) == 0);
  completions(1);
  change_both(IBV_QPS_RESET);
  rd_atomic = 4;
  if (!wrong) dest_rd_atomic = 4;
  for (int i = 0; i < 2; ++i) NEED(to_init(qp[i]) == 0);
  NEED(to_rtr(qp[0], qp[1]->qp_num) == 0 && to_rts(qp[0]) == 0);
  NEED(post(qp[0], &wr) == 0);
  NEED(to_rtr(qp[1], qp[0]->qp_num) == 0 && to_rts(qp[1]) == 0);
  completions(1);
  NEED(post(qp[0], &wr) == 0);
  completions(1);
  close_all();
  return 0;
}
