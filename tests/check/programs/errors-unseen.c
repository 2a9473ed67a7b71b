/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  struct ibv_sge sge = sge_of(buf, 8);
  struct ibv_send_wr wr = remote_wr(&sge, IBV_WR_RDMA_WRITE);
  for (int i = 0; i < 3; ++i) {
    wr.send_flags = !wrong && i == 2 ? IBV_SEND_SIGNALED : 0;
    NEED(post(qp[0], &wr) == 0);
  }
  if (!wrong) completions(1);
  close_all();
  return 0;
}
