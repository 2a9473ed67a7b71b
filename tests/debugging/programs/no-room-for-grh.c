/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

enum { kMessage = 64, kGrh = 40 };

int main(int argc, char** argv) {
  start(argc, argv);
  type = IBV_QPT_UD;
  open_pair();
  struct ibv_ah_attr where = address();
  struct ibv_ah* ah = ibv_create_ah(pd, &where);
  NEED(ah != NULL && receive_bytes(qp[1], 0, buf + kSize, kMessage + (wrong ? 0 : kGrh)) == 0);
  struct ibv_sge sge = sge_of(buf, kMessage);
  struct ibv_send_wr wr = send_wr(&sge, IBV_WR_SEND, 0);
  wr.wr.ud.ah = ah;
  wr.wr.ud.remote_qpn = qp[1]->qp_num;
  wr.wr.ud.remote_qkey = 0x1234;
  NEED(post(qp[0], &wr) == 0);
  struct ibv_wc wc;
  if (!poll_one(cq, &wc, 500)) {
    printf("nothing has arrived\n");
    return 1;
  }
  printf("%u bytes arrived\n", wc.byte_len - kGrh);
  NEED(ibv_destroy_ah(ah) == 0);
  close_all();
  return 0;
}
