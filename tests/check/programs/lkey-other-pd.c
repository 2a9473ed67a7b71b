/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  struct ibv_pd* other = ibv_alloc_pd(ctx);
  struct ibv_mr* region = ibv_reg_mr(wrong ? other : pd, buf, kSize, IBV_ACCESS_LOCAL_WRITE);
  NEED(other != NULL && region != NULL && receive_bytes(qp[1], 2, buf + kSize, 64) == 0);
  struct ibv_sge sge = {.addr = (uintptr_t)buf, .length = 64, .lkey = region->lkey};
  struct ibv_send_wr wr = send_wr(&sge, IBV_WR_SEND, IBV_SEND_SIGNALED);
  NEED(post(qp[0], &wr) == 0);
  if (wrong)
    failure(IBV_WC_LOC_PROT_ERR);
  else
    completions(2);
  NEED(ibv_dereg_mr(region) == 0 && ibv_dealloc_pd(other) == 0);
  close_all();
  return 0;
}
