/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  NEED(receive_bytes(qp[1], 2, buf + kSize, 2048) == 0);
  struct ibv_sge sge = sge_of(buf, wrong ? 2048 : 64);
  struct ibv_send_wr wr = send_wr(&sge, IBV_WR_SEND, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
  NEED((post(qp[0], &wr) == 0) == !wrong);
  if (!wrong) completions(2);
  close_all();
  return 0;
}
