/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  struct ibv_sge sge = sge_of(buf, 8);
  struct ibv_send_wr wr = remote_wr(&sge, IBV_WR_RDMA_WRITE);
  if (wrong) wr.wr.rdma.rkey += 0x1000;
  NEED(post(qp[0], &wr) == 0);
  NEED(completion() == (wrong ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS));
  close_all();
  return 0;
}
