/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

#include <pthread.h>

static void* rescue(void* unused) {
  until_reported("wait-unarmed");
  NEED(ibv_req_notify_cq(cq, 0) == 0);
  NEED(send_bytes(qp[0], buf, 32) == 0);
  return unused;
}

int main(int argc, char** argv) {
  begin(argc, argv);
  with_channel = 1;
  open_pair();
  NEED(receive_bytes(qp[1], 2, buf + kSize, 64) == 0 && receive_bytes(qp[1], 3, buf + kSize + 64, 64) == 0);
  if (!wrong) NEED(ibv_req_notify_cq(cq, 0) == 0);
  NEED(send_bytes(qp[0], buf, 32) == 0);
  pthread_t thread;
  if (wrong) NEED(pthread_create(&thread, NULL, rescue, NULL) == 0);
  struct ibv_cq* which;
  void* context;
  struct ibv_wc wc;
  if (!wrong) NEED(ibv_poll_cq(cq, 1, &wc) == 1);
  NEED(ibv_get_cq_event(channel, &which, &context) == 0);
  ibv_ack_cq_events(which, 1);
  if (wrong) pthread_join(thread, NULL);
  completions(wrong ? 4 : 1);
  close_all();
  return 0;
}
