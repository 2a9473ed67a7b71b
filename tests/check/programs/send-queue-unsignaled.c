/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  struct ibv_sge sge = sge_of(buf, 8);
  struct ibv_send_wr wr = remote_wr(&sge, IBV_WR_RDMA_WRITE);
  struct ibv_wc wc;
  int error = 0;
  for (int i = 0; i < 2000 && error == 0; ++i) {
    wr.send_flags = !wrong && i % 4 == 3 ? IBV_SEND_SIGNALED : 0;
    error = post(qp[0], &wr);
    if (wr.send_flags != 0)
      completions(1);
    else
      NEED(ibv_poll_cq(cq, 1, &wc) == 0);
  }
  NEED((error != 0) == wrong);
  close_all();
  return 0;
}
