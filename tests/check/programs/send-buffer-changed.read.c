/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

/* A SEND with a fence sends what the READ before it brings. */
int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  memset(buf + kSize, 'r', 512);
  NEED(receive_bytes(qp[1], 2, buf + kSize + 1024, 512) == 0);
  struct ibv_sge there = sge_of(wrong ? buf + 1024 : buf, 512), here = sge_of(buf, 512);
  struct ibv_send_wr read = remote_wr(&there, IBV_WR_RDMA_READ);
  struct ibv_send_wr send = send_wr(&here, IBV_WR_SEND, IBV_SEND_SIGNALED | IBV_SEND_FENCE);
  send.wr_id = 2;
  read.next = &send;
  NEED(post(qp[0], &read) == 0);
  if (wrong) buf[100] = 'x';
  completions(3);
  close_all();
  return 0;
}
