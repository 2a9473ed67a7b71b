/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

/* also: leak-device leak-pd */
int main(int argc, char** argv) {
  begin(argc, argv);
  open_device();
  struct ibv_mw* mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
  NEED(mw != NULL);
  if (!wrong) {
    NEED(ibv_dealloc_mw(mw) == 0);
    close_all();
  }
  return 0;
}
