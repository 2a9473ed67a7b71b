/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  NEED(receive_bytes(qp[1], 2, buf + kSize, 64) == 0);
  struct ibv_sge list[64];
  for (int i = 0; i < 64; ++i) list[i] = sge_of(buf + i, 1);
  struct ibv_send_wr wr = send_wr(list, IBV_WR_SEND, IBV_SEND_SIGNALED);
  wr.num_sge = wrong ? 64 : 2;
  NEED((post(qp[0], &wr) == 0) == !wrong);
  if (!wrong) completions(2);
  close_all();
  return 0;
}
