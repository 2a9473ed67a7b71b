/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

#include <pthread.h>

/* A server waits for solicited receives, and the completion of its own SEND may stay in the queue. */
static struct ibv_cq* client;

static void* rescue(void* unused) {
  struct ibv_sge sge = sge_of(buf + kSize, 32);
  struct ibv_send_wr wr = send_wr(&sge, IBV_WR_SEND, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);
  until_reported("solicited-never");
  NEED(post(qp[1], &wr) == 0);
  return unused;
}

int main(int argc, char** argv) {
  begin(argc, argv);
  with_channel = 1;
  open_device();
  make_memory(kAll);
  make_queues();
  client = ibv_create_cq(ctx, entries, NULL, NULL, 0);
  NEED(client != NULL);
  for (int i = 0; i < 2; ++i) {
    struct ibv_cq* const own = i == 0 ? cq : client;
    struct ibv_qp_init_attr attr = {.send_cq = own, .recv_cq = own, .cap = cap, .qp_type = type, .sq_sig_all = 0};
    qp[i] = ibv_create_qp(pd, &attr);
    NEED(qp[i] != NULL && to_init(qp[i]) == 0);
  }
  connect_pair();
  NEED(receive_bytes(qp[1], 2, buf + kSize + 64, 64) == 0);
  NEED(receive_bytes(qp[0], 3, buf + 64, 64) == 0 && receive_bytes(qp[0], 4, buf + 128, 64) == 0);
  NEED(ibv_req_notify_cq(cq, 1) == 0);
  NEED(send_bytes(qp[0], buf, 32) == 0);
  if (wrong) NEED(send_bytes(qp[1], buf + kSize, 32) == 0); /* a receive completes, and its sender did not solicit */
  pthread_t thread;
  struct ibv_cq* which;
  void* context;
  NEED(pthread_create(&thread, NULL, rescue, NULL) == 0);
  NEED(ibv_get_cq_event(channel, &which, &context) == 0 && which == cq);
  ibv_ack_cq_events(which, 1);
  pthread_join(thread, NULL);
  completions(wrong ? 3 : 2);
  cq = client;
  completions(wrong ? 3 : 2);
  cq = which;
  destroy_qps();
  NEED(ibv_destroy_cq(client) == 0);
  close_all();
  return 0;
}
