/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair_in_init();
  NEED(receive_bytes(qp[1], 2, buf + kSize, 64) == 0);
  if (!wrong) connect_pair();
  NEED((send_bytes(qp[0], buf, 8) == 0) == !wrong);
  if (!wrong) completions(2);
  close_all();
  return 0;
}
