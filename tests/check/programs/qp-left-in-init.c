/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair_in_init();
  NEED(receive_bytes(qp[1], 2, buf + kSize, 64) == 0);
  if (!wrong) connect_pair();
  struct ibv_wc wc;
  NEED(ibv_poll_cq(cq, 1, &wc) == 0);
  close_all();
  return 0;
}
