/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair_in_init();
  NEED(receive_bytes(qp[1], 2, buf + kSize, 64) == 0);
  NEED(to_rtr(qp[0], qp[1]->qp_num) == 0);
  if (wrong) path_mtu = IBV_MTU_512;
  NEED(to_rtr(qp[1], qp[0]->qp_num) == 0);
  NEED(to_rts(qp[0]) == 0 && to_rts(qp[1]) == 0);
  NEED(send_bytes(qp[0], buf, 32) == 0);
  completions(2);
  close_all();
  return 0;
}
