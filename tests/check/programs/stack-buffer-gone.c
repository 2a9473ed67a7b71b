/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

__attribute__((noinline)) static struct ibv_mr* send_local(int wait) {
  char local[256];
  memset(local, 7, sizeof local);
  struct ibv_mr* region = ibv_reg_mr(pd, local, sizeof local, IBV_ACCESS_LOCAL_WRITE);
  NEED(region != NULL);
  struct ibv_sge sge = {.addr = (uintptr_t)local, .length = sizeof local, .lkey = region->lkey};
  struct ibv_send_wr wr = send_wr(&sge, IBV_WR_SEND, IBV_SEND_SIGNALED);
  NEED(post(qp[0], &wr) == 0);
  if (wait) completions(2);
  return region;
}

/* also: send-buffer-changed */
int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  NEED(receive_bytes(qp[1], 2, buf + kSize, 512) == 0);
  struct ibv_mr* region = send_local(!wrong);
  if (wrong) completions(2);
  NEED(ibv_dereg_mr(region) == 0);
  close_all();
  return 0;
}
