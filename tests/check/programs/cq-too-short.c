/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  entries = wrong ? 1 : 8;
  open_pair();
  for (int i = 0; i < 8; ++i) NEED(receive_bytes(qp[1], i, buf + kSize + 64 * i, 64) == 0);
  close_all();
  return 0;
}
