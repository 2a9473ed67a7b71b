/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

/* also: send-too-long */
int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  NEED(receive_bytes(qp[1], 2, buf + kSize, wrong ? 16 : 32) == 0);
  NEED(send_bytes(qp[0], buf, 32) == 0);
  if (wrong) {
    NEED(completion() != IBV_WC_SUCCESS);
    NEED(completion() != IBV_WC_SUCCESS);
  } else {
    completions(2);
  }
  close_all();
  return 0;
}
