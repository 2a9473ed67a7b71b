/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  open_device();
  char* block = malloc(64 * 1024);
  struct ibv_mr* region = ibv_reg_mr(pd, block, 64 * 1024, IBV_ACCESS_LOCAL_WRITE);
  NEED(region != NULL);
  if (wrong) free(block);
  NEED(ibv_dereg_mr(region) == 0);
  if (!wrong) free(block);
  close_all();
  return 0;
}
