/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair_in_init();
  for (int i = 0; i < 2; ++i) NEED(to_rtr(qp[i], qp[1 - i]->qp_num) == 0);
  NEED(receive_bytes(qp[1], 2, buf + kSize, 64) == 0);
  if (!wrong) NEED(to_rts(qp[0]) == 0 && to_rts(qp[1]) == 0);
  NEED((send_bytes(qp[0], buf, 8) == 0) == !wrong);
  if (!wrong) completions(2);
  close_all();
  return 0;
}
