/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  type = IBV_QPT_UD;
  open_pair();
  struct ibv_ah_attr where = address();
  struct ibv_ah* ah = ibv_create_ah(pd, &where);
  NEED(ah != NULL && receive_bytes(qp[1], 2, buf + kSize, 256) == 0);
  struct ibv_sge sge = sge_of(buf, 64);
  struct ibv_send_wr wr = send_wr(&sge, IBV_WR_SEND, IBV_SEND_SIGNALED);
  wr.wr.ud.ah = ah;
  wr.wr.ud.remote_qpn = wrong ? qp[1]->qp_num + 0x1000 : qp[1]->qp_num;
  wr.wr.ud.remote_qkey = 0x1234;
  NEED(post(qp[0], &wr) == 0);
  completions(wrong ? 1 : 2);
  NEED(ibv_destroy_ah(ah) == 0);
  close_all();
  return 0;
}
