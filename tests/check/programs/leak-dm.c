/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

/* also: leak-device leak-pd */
int main(int argc, char** argv) {
  begin(argc, argv);
  open_device();
  struct ibv_alloc_dm_attr attr = {.length = 64};
  struct ibv_dm* dm = ibv_alloc_dm(ctx, &attr);
  NEED(dm != NULL);
  if (!wrong) {
    NEED(ibv_free_dm(dm) == 0);
    close_all();
  }
  return 0;
}
