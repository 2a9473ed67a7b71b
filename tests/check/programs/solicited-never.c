/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

#include <pthread.h>

static void* rescue(void* unused) {
  struct ibv_sge sge = sge_of(buf, 32);
  struct ibv_send_wr wr = send_wr(&sge, IBV_WR_SEND, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);
  until_reported("solicited-never");
  NEED(post(qp[0], &wr) == 0);
  return unused;
}

int main(int argc, char** argv) {
  begin(argc, argv);
  with_channel = 1;
  open_pair();
  NEED(receive_bytes(qp[1], 2, buf + kSize, 64) == 0 && receive_bytes(qp[1], 3, buf + kSize + 64, 64) == 0);
  NEED(ibv_req_notify_cq(cq, 1) == 0);
  struct ibv_sge sge = sge_of(buf, 32);
  struct ibv_send_wr wr = send_wr(&sge, IBV_WR_SEND, IBV_SEND_SIGNALED | (wrong ? 0 : IBV_SEND_SOLICITED));
  NEED(post(qp[0], &wr) == 0);
  pthread_t thread;
  if (wrong) NEED(pthread_create(&thread, NULL, rescue, NULL) == 0);
  struct ibv_cq* which;
  void* context;
  NEED(ibv_get_cq_event(channel, &which, &context) == 0);
  ibv_ack_cq_events(which, 1);
  if (wrong) pthread_join(thread, NULL);
  completions(wrong ? 4 : 2);
  close_all();
  return 0;
}
