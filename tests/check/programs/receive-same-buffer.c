/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  NEED(receive_bytes(qp[1], 2, buf + kSize, 64) == 0);
  NEED(receive_bytes(qp[1], 3, buf + kSize + (wrong ? 0 : 64), 64) == 0);
  close_all();
  return 0;
}
