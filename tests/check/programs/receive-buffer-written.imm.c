/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

/* An RDMA WRITE brings bytes to where a receive is posted, and the receive tells of it. */
int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  struct ibv_mr* const local = ibv_reg_mr(pd, buf, 2 * kSize, IBV_ACCESS_LOCAL_WRITE);
  NEED(local != NULL);
  struct ibv_sge to = {.addr = (uintptr_t)(buf + kSize), .length = 512, .lkey = local->lkey};
  struct ibv_recv_wr receive = {.wr_id = 2, .sg_list = &to, .num_sge = 1}, *bad;
  NEED(ibv_post_recv(qp[1], &receive, &bad) == 0);
  struct ibv_sge sge = sge_of(buf, 64);
  struct ibv_send_wr wr = remote_wr(&sge, IBV_WR_RDMA_WRITE_WITH_IMM);
  NEED(post(qp[0], &wr) == 0);
  completions(2);
  NEED(ibv_post_recv(qp[1], &receive, &bad) == 0);
  if (wrong) buf[kSize + 300] = 'x';
  NEED(send_bytes(qp[0], buf, 64) == 0);
  completions(2);
  NEED(ibv_dereg_mr(local) == 0);
  close_all();
  return 0;
}
