/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  if (!wrong) NEED(receive_bytes(qp[1], 2, buf + kSize, 64) == 0);
  NEED(send_bytes(qp[0], buf, 32) == 0);
  if (wrong) NEED(receive_bytes(qp[1], 2, buf + kSize, 64) == 0);
  completions(2);
  close_all();
  return 0;
}
