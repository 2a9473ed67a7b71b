/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

/* also: registered-freed */
/* SGEs name the bytes by numbers that are addresses of another block, which may be freed. */
int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  char* const block = aligned_alloc(4096, 64 * 1024);
  char* const other = aligned_alloc(4096, 64 * 1024);
  NEED(block != NULL && other != NULL);
  struct ibv_mr* region = ibv_reg_mr(pd, other, 64 * 1024, IBV_ACCESS_LOCAL_WRITE);
  NEED(region != NULL && ibv_dereg_mr(region) == 0);
  region = ibv_reg_mr_iova(pd, block, 64 * 1024, (uintptr_t)other, IBV_ACCESS_LOCAL_WRITE);
  NEED(region != NULL);
  struct ibv_sge sge = {.addr = (uintptr_t)other, .length = 64, .lkey = region->lkey};
  struct ibv_recv_wr wr = {.wr_id = 2, .sg_list = &sge, .num_sge = 1}, *bad;
  NEED(ibv_post_recv(qp[1], &wr, &bad) == 0);
  free(wrong ? block : other);
  destroy_qps();
  NEED(ibv_dereg_mr(region) == 0);
  free(wrong ? other : block);
  close_all();
  return 0;
}
