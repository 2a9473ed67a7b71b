/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

/* also: leak-device leak-pd */
int main(int argc, char** argv) {
  begin(argc, argv);
  open_device();
  struct ibv_ah_attr where = address();
  struct ibv_ah* ah = ibv_create_ah(pd, &where);
  NEED(ah != NULL);
  if (!wrong) {
    NEED(ibv_destroy_ah(ah) == 0);
    close_all();
  }
  return 0;
}
