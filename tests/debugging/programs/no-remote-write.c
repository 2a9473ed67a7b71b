/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  start(argc, argv);
  open_pair();
  struct ibv_mr* inbox =
      ibv_reg_mr(pd, buf + kSize, kSize, IBV_ACCESS_LOCAL_WRITE | (wrong ? 0 : IBV_ACCESS_REMOTE_WRITE));
  NEED(inbox != NULL);
  struct ibv_sge sge = sge_of(buf, 8);
  struct ibv_send_wr wr = remote_wr(&sge, IBV_WR_RDMA_WRITE);
  wr.wr.rdma.rkey = inbox->rkey;
  struct ibv_wc wc;
  NEED(post(qp[0], &wr) == 0 && poll_one(cq, &wc, 5000));
  NEED(ibv_dereg_mr(inbox) == 0);
  close_all();
  printf("written\n");
  return 0;
}
