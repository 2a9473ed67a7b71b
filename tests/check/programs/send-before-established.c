/* SPDX-License-Identifier: BSD-2-Clause */
#include "cm.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  request_connection();
  NEED(receive_bytes(out->qp, 2, buf + kSize, 64) == 0);
  accept_connection();
  if (!wrong) await_both();
  NEED(send_bytes(in->qp, buf, 32) == 0);
  if (wrong) await_both();
  completions(2);
  close_connection();
  return 0;
}
