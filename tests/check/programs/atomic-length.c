/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  struct ibv_sge sge = sge_of(buf, wrong ? 4 : 8);
  struct ibv_send_wr wr = remote_wr(&sge, IBV_WR_ATOMIC_CMP_AND_SWP);
  NEED(post(qp[0], &wr) == 0);
  NEED((completion() == IBV_WC_SUCCESS) == !wrong);
  close_all();
  return 0;
}
