/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

/* also: leak-device leak-pd */
int main(int argc, char** argv) {
  begin(argc, argv);
  open_device();
  struct ibv_td_init_attr attr = {0};
  struct ibv_td* td = ibv_alloc_td(ctx, &attr);
  NEED(td != NULL);
  if (!wrong) {
    NEED(ibv_dealloc_td(td) == 0);
    close_all();
  }
  return 0;
}
