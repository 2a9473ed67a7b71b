/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  NEED(receive_bytes(qp[1], 2, buf + kSize, 64) == 0);
  NEED(send_bytes(qp[0], buf, 32) == 0);
  struct ibv_wc wc;
  NEED(ibv_poll_cq(cq, 0, &wc) == 0);
  if (wrong) {
    destroy_qps();
    for (int i = 0; i < 5000; ++i) NEED(ibv_poll_cq(cq, 1, &wc) == 0);
  } else {
    completions(2);
    destroy_qps();
    for (int i = 0; i < 5000; ++i) NEED(ibv_poll_cq(cq, 1, &wc) == 0);
  }
  close_all();
  return 0;
}
