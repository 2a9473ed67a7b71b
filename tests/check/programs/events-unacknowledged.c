/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

#include <pthread.h>

static void* rescue(void* unused) {
  until_reported("events-unacknowledged");
  ibv_ack_cq_events(cq, 1);
  return unused;
}

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
  if (!wrong) ibv_ack_cq_events(which, 1);
  completions(2);
  pthread_t thread;
  if (wrong) NEED(pthread_create(&thread, NULL, rescue, NULL) == 0);
  close_all();
  if (wrong) pthread_join(thread, NULL);
  return 0;
}
