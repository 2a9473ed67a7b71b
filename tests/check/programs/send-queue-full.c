/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  entries = 4096;
  open_pair();
  struct ibv_sge sge = sge_of(buf, 8);
  struct ibv_send_wr wr = remote_wr(&sge, IBV_WR_RDMA_WRITE);
  int error = 0;
  for (int i = 0; i < 2000 && error == 0; ++i) {
    error = post(qp[0], &wr);
    if (!wrong) completions(1);
  }
  NEED((error != 0) == wrong);
  struct ibv_wc wc;
  while (wrong && ibv_poll_cq(cq, 1, &wc) == 1) continue;
  close_all();
  return 0;
}
