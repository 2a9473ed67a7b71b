/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  dest_rd_atomic = wrong ? 0 : 1;
  open_pair();
  struct ibv_sge sge = sge_of(buf, 8);
  struct ibv_send_wr wr = remote_wr(&sge, IBV_WR_RDMA_READ);
  NEED(post(qp[0], &wr) == 0);
  NEED((completion() == IBV_WC_SUCCESS) == !wrong);
  close_all();
  return 0;
}
