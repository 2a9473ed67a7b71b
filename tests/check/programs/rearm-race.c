/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

#include <pthread.h>

static void* send_later(void* unused) {
  NEED(send_bytes(qp[0], buf, 32) == 0);
  return unused;
}

int main(int argc, char** argv) {
  begin(argc, argv);
  with_channel = 1;
  open_pair();
  NEED(receive_bytes(qp[1], 2, buf + kSize, 64) == 0);
  NEED(receive_bytes(qp[1], 3, buf + kSize + 64, 64) == 0);
  NEED(send_bytes(qp[0], buf, 32) == 0); /* it is complete when the queue is armed: some adapters have no event for it */
  NEED(ibv_req_notify_cq(cq, 0) == 0);
  struct ibv_wc wc;
  int polled = 0;
  while (!wrong && ibv_poll_cq(cq, 1, &wc) == 1) ++polled;
  pthread_t thread;
  struct ibv_cq* which;
  void* context;
  NEED(pthread_create(&thread, NULL, send_later, NULL) == 0);
  NEED(ibv_get_cq_event(channel, &which, &context) == 0);
  ibv_ack_cq_events(which, 1);
  pthread_join(thread, NULL);
  completions(4 - polled);
  close_all();
  return 0;
}
