/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  start(argc, argv);
  rnr_retry = 3;
  open_pair();
  struct ibv_wc wc;
  if (!wrong) NEED(receive_bytes(qp[1], 0, buf + kSize, 64) == 0);
  NEED(send_bytes(qp[0], buf, 32) == 0);
  if (wrong) {
    usleep(500000); /* other work first: far longer than three RNR timers, on a busy machine too */
    NEED(receive_bytes(qp[1], 0, buf + kSize, 64) == 0);
  }
  NEED(poll_one(cq, &wc, 5000) && poll_one(cq, &wc, 5000));
  close_all();
  printf("the message has arrived\n");
  return 0;
}
