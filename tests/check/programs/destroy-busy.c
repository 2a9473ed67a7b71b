/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  if (!wrong) destroy_qps();
  NEED((ibv_destroy_cq(cq) == 0) == !wrong);
  if (!wrong) cq = NULL;
  close_all();
  return 0;
}
