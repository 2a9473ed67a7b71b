/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  with_srq = 1;
  open_pair();
  struct ibv_sge sge = sge_of(buf + kSize, 64);
  struct ibv_recv_wr wr = {.wr_id = 2, .sg_list = &sge, .num_sge = 1}, *bad;
  const int error = wrong ? ibv_post_recv(qp[1], &wr, &bad) : ibv_post_srq_recv(srq, &wr, &bad);
  NEED((error != 0) == wrong);
  close_all();
  return 0;
}
