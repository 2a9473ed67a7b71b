/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  struct ibv_pd* other = ibv_alloc_pd(ctx);
  struct ibv_mr* region = ibv_reg_mr(wrong ? other : pd, buf + kSize, kSize, kAll);
  NEED(region != NULL);
  struct ibv_sge sge = sge_of(buf, 8);
  struct ibv_send_wr wr = remote_wr(&sge, IBV_WR_RDMA_WRITE);
  wr.wr.rdma.rkey = region->rkey;
  NEED(post(qp[0], &wr) == 0);
  NEED(completion() == (wrong ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS));
  NEED(ibv_dereg_mr(region) == 0 && ibv_dealloc_pd(other) == 0);
  close_all();
  return 0;
}
