/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

/* like: irdma */
int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  struct ibv_sge sge = sge_of(buf, 8);
  struct ibv_send_wr wr = remote_wr(&sge, wrong ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_RDMA_READ);
  NEED(post(qp[0], &wr) == 0);
  completions(1);
  close_all();
  return 0;
}
