/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  with_channel = 1;
  open_pair();
  NEED(receive_bytes(qp[1], 2, buf + kSize, 64) == 0);
  NEED(ibv_req_notify_cq(cq, 0) == 0);
  struct ibv_wc wc;
  NEED(ibv_poll_cq(cq, 1, &wc) == 0);
  NEED(send_bytes(qp[0], buf, 32) == 0);
  struct ibv_cq* which;
  void* context;
  NEED(ibv_get_cq_event(channel, &which, &context) == 0);
  ibv_ack_cq_events(which, wrong ? 2 : 1);
  completions(2);
  close_all();
  return 0;
}
