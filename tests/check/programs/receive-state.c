/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  open_device();
  make_memory(kAll);
  make_queues();
  qp[0] = make_qp();
  NEED(qp[0] != NULL && (wrong || to_init(qp[0]) == 0));
  NEED((receive_bytes(qp[0], 2, buf, 64) == 0) == !wrong);
  close_all();
  return 0;
}
