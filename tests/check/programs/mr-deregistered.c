/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  NEED(receive_bytes(qp[1], 2, buf + kSize, 64) == 0);
  struct ibv_mr* small = ibv_reg_mr(pd, buf, 64, 0);
  NEED(small != NULL);
  struct ibv_sge sge = {.addr = (uintptr_t)buf, .length = 64, .lkey = small->lkey};
  struct ibv_send_wr wr = send_wr(&sge, IBV_WR_SEND, IBV_SEND_SIGNALED);
  if (wrong) NEED(ibv_dereg_mr(small) == 0);
  NEED(post(qp[0], &wr) == 0);
  if (wrong)
    failure(IBV_WC_LOC_PROT_ERR);
  else
    completions(2);
  if (!wrong) NEED(ibv_dereg_mr(small) == 0);
  close_all();
  return 0;
}
