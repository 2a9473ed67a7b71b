/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  if (wrong) rd_atomic = 4;
  open_pair();
  struct ibv_sge sge = sge_of(buf, 32);
  struct ibv_send_wr wr = remote_wr(&sge, IBV_WR_RDMA_READ);
  NEED(post(qp[0], &wr) == 0);
  completions(1);
  close_all();
  return 0;
}
