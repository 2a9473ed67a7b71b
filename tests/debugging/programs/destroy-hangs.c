/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  start(argc, argv);
  with_channel = 1;
  open_pair();
  struct ibv_cq* which;
  void* context;
  NEED(receive_bytes(qp[1], 0, buf + kSize, 64) == 0);
  NEED(ibv_req_notify_cq(cq, 0) == 0);
  NEED(send_bytes(qp[0], buf, 32) == 0);
  NEED(ibv_get_cq_event(channel, &which, &context) == 0);
  if (!wrong) ibv_ack_cq_events(which, 1);
  completions(2);
  printf("the message has arrived, closing\n");
  close_all();
  printf("closed\n");
  return 0;
}
