/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  open_device();
  make_queues();
  qp[0] = make_qp();
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
  const int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (wrong ? 0 : IBV_QP_ACCESS_FLAGS);
  NEED((ibv_modify_qp(qp[0], &attr, mask) == 0) == !wrong);
  close_all();
  return 0;
}
