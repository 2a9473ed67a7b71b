/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  char* block = malloc(64 * 1024);
  struct ibv_mr* region = ibv_reg_mr(pd, block, 64 * 1024, IBV_ACCESS_LOCAL_WRITE);
  NEED(region != NULL);
  struct ibv_sge sge = {.addr = (uintptr_t)block, .length = 64, .lkey = region->lkey};
  struct ibv_recv_wr wr = {.wr_id = 2, .sg_list = &sge, .num_sge = 1}, *bad;
  NEED(ibv_post_recv(qp[1], &wr, &bad) == 0);
  if (wrong) free(block);
  destroy_qps();
  NEED(ibv_dereg_mr(region) == 0);
  if (!wrong) free(block);
  close_all();
  return 0;
}
