/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  open_device();
  NEED(ibv_dealloc_pd(pd) == 0);
  if (!wrong) {
    NEED(ibv_close_device(ctx) == 0);
  }
  return 0;
}
