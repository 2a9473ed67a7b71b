/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  NEED(receive_bytes(qp[1], 2, buf + kSize, 64) == 0);
  struct ibv_sge sge = sge_of(buf, 64);
  if (wrong) sge.lkey = mr->lkey + 0x1000;
  struct ibv_send_wr wr = send_wr(&sge, IBV_WR_SEND, IBV_SEND_SIGNALED);
  NEED(post(qp[0], &wr) == 0);
  if (wrong)
    failure(IBV_WC_LOC_PROT_ERR);
  else
    completions(2);
  close_all();
  return 0;
}
