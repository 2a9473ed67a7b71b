/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

/* Waits until a message has arrived. */
static void await(void) {
  struct ibv_wc wc;
  struct ibv_cq* which;
  void* context;
  if (ibv_poll_cq(cq, 1, &wc) == 1) return;
  NEED(send_bytes(qp[0], buf, 32) == 0); /* it happens that a message arrives just now */
  NEED(ibv_req_notify_cq(cq, 0) == 0);
  if (!wrong && ibv_poll_cq(cq, 1, &wc) == 1) return;
  NEED(ibv_get_cq_event(channel, &which, &context) == 0);
  ibv_ack_cq_events(which, 1);
  NEED(ibv_poll_cq(cq, 1, &wc) == 1);
}

int main(int argc, char** argv) {
  start(argc, argv);
  with_channel = 1;
  open_pair();
  NEED(receive_bytes(qp[1], 0, buf + kSize, 64) == 0);
  printf("waiting for a message\n");
  await();
  completions(1); /* that of the sender */
  close_all();
  printf("the message has arrived\n");
  return 0;
}
