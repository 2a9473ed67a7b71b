/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  start(argc, argv);
  open_pair();
  for (int i = 0; i < 1000; ++i) {
    struct ibv_sge sge = sge_of(buf, 8);
    struct ibv_send_wr wr = remote_wr(&sge, IBV_WR_RDMA_WRITE);
    struct ibv_wc wc;
    wr.wr_id = i;
    wr.send_flags = !wrong && i % 4 == 3 ? IBV_SEND_SIGNALED : 0;
    int error = post(qp[0], &wr);
    if (error != 0) {
      printf("write %d: ibv_post_send: %s\n", i, strerror(error));
      return 1;
    }
    if (wr.send_flags != 0) NEED(poll_one(cq, &wc, 5000));
  }
  close_all();
  printf("1000 writes\n");
  return 0;
}
