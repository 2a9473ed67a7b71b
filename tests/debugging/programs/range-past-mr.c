/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

/* Each message has a header of 16 bytes in front of it. The size of the region does not count the
 * headers. */
enum { kMessages = 8, kHeader = 16, kBody = 256 };

int main(int argc, char** argv) {
  start(argc, argv);
  cap.max_send_wr = cap.max_recv_wr = kMessages;
  open_pair();
  size_t slot = kHeader + kBody;
  char* out = calloc(kMessages, slot);
  struct ibv_mr* region = ibv_reg_mr(pd, out, kMessages * (wrong ? kBody : slot), 0);
  NEED(region != NULL);
  for (int i = 0; i < kMessages; ++i) {
    struct ibv_sge sge = {.addr = (uintptr_t)out + i * slot, .length = slot, .lkey = region->lkey};
    struct ibv_send_wr wr = send_wr(&sge, IBV_WR_SEND, IBV_SEND_SIGNALED);
    struct ibv_wc wc;
    wr.wr_id = i;
    NEED(receive_bytes(qp[1], i, buf + kSize, slot) == 0 && post(qp[0], &wr) == 0);
    NEED(poll_one(cq, &wc, 5000) && poll_one(cq, &wc, 5000));
  }
  NEED(ibv_dereg_mr(region) == 0);
  free(out);
  close_all();
  printf("%d messages sent\n", kMessages);
  return 0;
}
