/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  struct ibv_mr* region = ibv_reg_mr(pd, buf, 64, 0);
  NEED(region != NULL && ibv_dereg_mr(region) == 0);
  if (wrong) NEED(ibv_dereg_mr(region) != 0);
  close_all();
  return 0;
}
