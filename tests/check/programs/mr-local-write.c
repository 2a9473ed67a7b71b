/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  struct ibv_mr* region = ibv_reg_mr(pd, buf, kSize, wrong ? 0 : IBV_ACCESS_LOCAL_WRITE);
  NEED(region != NULL);
  struct ibv_sge sge = {.addr = (uintptr_t)buf, .length = 64, .lkey = region->lkey};
  struct ibv_send_wr wr = remote_wr(&sge, IBV_WR_RDMA_READ);
  NEED(post(qp[0], &wr) == 0);
  NEED(completion() == (wrong ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS));
  NEED(ibv_dereg_mr(region) == 0);
  close_all();
  return 0;
}
