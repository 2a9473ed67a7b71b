/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  open_device();
  if (wrong) {
    NEED(ibv_close_device(ctx) == 0);
    NEED(ibv_dealloc_pd(pd) == 0);
  } else {
    close_device();
  }
  return 0;
}
