/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

/* also: cq-too-short */
int main(int argc, char** argv) {
  begin(argc, argv);
  entries = 1;
  cap.max_send_wr = 64;
  open_pair();
  struct ibv_sge sge = sge_of(buf, 8);
  struct ibv_send_wr wr = remote_wr(&sge, IBV_WR_RDMA_WRITE);
  for (int i = 0; i < 64; ++i) {
    const int error = post(qp[0], &wr);
    if (!wrong) {
      NEED(error == 0);
      completions(1);
    }
  }
  struct ibv_wc wc;
  if (wrong) { /* the device says so when it has noticed */
    struct ibv_async_event event;
    NEED(ibv_get_async_event(ctx, &event) == 0);
    ibv_ack_async_event(&event);
  }
  ibv_poll_cq(cq, 1, &wc);
  close_all();
  return 0;
}
