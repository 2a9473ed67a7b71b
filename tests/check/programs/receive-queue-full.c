/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  entries = 4096;
  open_pair();
  int error = 0;
  for (int i = 0; i < (wrong ? 2000 : 8) && error == 0; ++i) error = receive_bytes(qp[1], i, buf + kSize + (i % 8) * 64, 64);
  NEED((error != 0) == wrong);
  close_all();
  return 0;
}
