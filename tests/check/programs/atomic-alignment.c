/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  struct ibv_sge sge = sge_of(buf, 8);
  struct ibv_send_wr wr = remote_wr(&sge, IBV_WR_ATOMIC_FETCH_AND_ADD);
  wr.wr.atomic.compare_add = 1;
  if (wrong) wr.wr.atomic.remote_addr += 4;
  NEED(post(qp[0], &wr) == 0);
  NEED((completion() == IBV_WC_SUCCESS) == !wrong);
  close_all();
  return 0;
}
