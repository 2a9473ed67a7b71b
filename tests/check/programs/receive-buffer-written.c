/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  NEED(ibv_dereg_mr(mr) == 0);
  mr = ibv_reg_mr(pd, buf, 2 * kSize, IBV_ACCESS_LOCAL_WRITE); /* peers cannot write there */
  NEED(mr != NULL);
  NEED(receive_bytes(qp[1], 2, buf + kSize, 512) == 0);
  if (wrong) buf[kSize + 300] = 'x';
  NEED(send_bytes(qp[0], buf, 64) == 0);
  completions(2);
  buf[kSize + 300] = 'y';
  close_all();
  return 0;
}
