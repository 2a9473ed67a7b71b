/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  type = IBV_QPT_UD;
  open_pair();
  NEED(receive_bytes(qp[1], 2, buf + kSize, wrong ? 32 : 72) == 0);
  close_all();
  return 0;
}
