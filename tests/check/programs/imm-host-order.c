/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>

#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  NEED(receive_bytes(qp[1], 2, buf + kSize, 64) == 0);
  struct ibv_sge sge = sge_of(buf, 32);
  struct ibv_send_wr wr = send_wr(&sge, IBV_WR_SEND_WITH_IMM, IBV_SEND_SIGNALED);
  wr.imm_data = wrong ? 7 : htonl(7);
  NEED(post(qp[0], &wr) == 0);
  completions(2);
  close_all();
  return 0;
}
