/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  struct ibv_mr* region = ibv_reg_mr(pd, buf + kSize, kSize, IBV_ACCESS_LOCAL_WRITE | (wrong ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE));
  NEED(region != NULL);
  struct ibv_sge sge = sge_of(buf, 8);
  struct ibv_send_wr wr = remote_wr(&sge, IBV_WR_RDMA_WRITE);
  wr.wr.rdma.rkey = region->rkey;
  NEED(post(qp[0], &wr) == 0);
  NEED(completion() == (wrong ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS));
  NEED(ibv_dereg_mr(region) == 0);
  close_all();
  return 0;
}
