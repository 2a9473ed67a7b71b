/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  NEED(receive_bytes(qp[1], 2, buf + kSize, 64) == 0);
  NEED(send_bytes(qp[0], buf + 2 * kSize - 32, wrong ? 33 : 32) == 0);
  if (wrong)
    failure(IBV_WC_LOC_PROT_ERR);
  else
    completions(2);
  close_all();
  return 0;
}
