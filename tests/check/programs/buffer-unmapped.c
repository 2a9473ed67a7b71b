/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

#include <sys/mman.h>

int main(int argc, char** argv) {
  begin(argc, argv);
  open_device();
  char* block = mmap(NULL, 64 * 1024, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  NEED(block != MAP_FAILED);
  struct ibv_mr* region = ibv_reg_mr(pd, block, 64 * 1024, IBV_ACCESS_LOCAL_WRITE);
  NEED(region != NULL);
  if (wrong) NEED(munmap(block, 64 * 1024) == 0);
  NEED(ibv_dereg_mr(region) == 0);
  if (!wrong) NEED(munmap(block, 64 * 1024) == 0);
  close_all();
  return 0;
}
