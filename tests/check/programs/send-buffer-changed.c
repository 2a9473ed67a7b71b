/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  NEED(receive_bytes(qp[1], 2, buf + kSize, 512) == 0);
  NEED(send_bytes(qp[0], buf, 512) == 0);
  if (wrong) buf[100] = 'x';
  completions(2);
  buf[100] = 'y';
  close_all();
  return 0;
}
