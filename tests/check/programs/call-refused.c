/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  open_device();
  make_queues();
  if (wrong) cap.max_send_wr = 1u << 30;
  qp[0] = make_qp();
  NEED((qp[0] != NULL) == !wrong);
  close_all();
  return 0;
}
