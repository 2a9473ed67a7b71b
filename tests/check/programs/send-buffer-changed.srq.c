/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

static int share_receive(uint64_t wr_id, char* at) {
  struct ibv_sge sge = sge_of(at, 512);
  struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad;
  return ibv_post_srq_recv(srq, &wr, &bad);
}

/* The answer comes into the buffer of the question, whose SEND is not signaled. */
int main(int argc, char** argv) {
  begin(argc, argv);
  with_srq = 1;
  open_pair();
  memset(buf + kSize, 'a', 512);
  NEED(share_receive(2, buf + kSize + 1024) == 0);
  NEED(share_receive(3, wrong ? buf + 1024 : buf) == 0);
  NEED(share_receive(4, buf + kSize + 2048) == 0);
  struct ibv_sge sge = sge_of(buf, 512);
  struct ibv_send_wr question = send_wr(&sge, IBV_WR_SEND, 0);
  question.wr_id = 7;
  NEED(post(qp[0], &question) == 0);
  completions(1);
  if (wrong) buf[100] = 'x';
  NEED(send_bytes(qp[1], buf + kSize, 512) == 0);
  completions(2);
  NEED(send_bytes(qp[0], buf + 2048, 512) == 0);
  completions(2);
  close_all();
  return 0;
}
