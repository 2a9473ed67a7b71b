/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  struct ibv_qp* one = qp[0];
  if (wrong) {
    NEED(ibv_destroy_qp(one) == 0);
    qp[0] = NULL;
  }
  NEED((receive_bytes(one, 2, buf, 64) == 0) == !wrong);
  close_all();
  return 0;
}
