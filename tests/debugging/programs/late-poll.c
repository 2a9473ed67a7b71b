/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

#include <pthread.h>

enum { kRounds = 5 };
/* Of the server: its receives, and its answers. The next message may arrive before an answer is complete. */
static struct ibv_cq *messages, *answers;

/* Answers each message. Where there is none, it leaves the processor to others. */
static void* serve(void* unused) {
  for (int i = 0; i < kRounds; ++i) {
    struct ibv_wc wc;
    while (ibv_poll_cq(messages, 1, &wc) == 0) {
      if (wrong) usleep(40000);
    }
    NEED(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV);
    NEED(send_bytes(qp[1], buf + kSize, 32) == 0);
    NEED(poll_one(answers, &wc, 5000));
  }
  return unused;
}

int main(int argc, char** argv) {
  start(argc, argv);
  open_device();
  make_memory(kAll);
  make_queues();
  messages = ibv_create_cq(ctx, entries, NULL, NULL, 0);
  answers = ibv_create_cq(ctx, entries, NULL, NULL, 0);
  NEED(messages != NULL && answers != NULL);
  qp[0] = make_qp();
  struct ibv_qp_init_attr attr = {.send_cq = answers, .recv_cq = messages, .cap = cap, .qp_type = IBV_QPT_RC};
  qp[1] = ibv_create_qp(pd, &attr);
  NEED(qp[0] != NULL && qp[1] != NULL && to_init(qp[0]) == 0 && to_init(qp[1]) == 0);
  for (int i = 0; i < kRounds; ++i)
    NEED(receive_bytes(qp[0], i, buf, 64) == 0 && receive_bytes(qp[1], i, buf + kSize, 64) == 0);
  connect_pair();
  pthread_t server;
  NEED(pthread_create(&server, NULL, serve, NULL) == 0);
  const int64_t began = now_ms();
  for (int i = 0; i < kRounds; ++i) {
    struct ibv_wc wc;
    NEED(send_bytes(qp[0], buf + 128, 32) == 0 && poll_one(cq, &wc, 5000) && poll_one(cq, &wc, 5000));
  }
  printf("%d messages and answers: %d ms\n", kRounds, (int)(now_ms() - began));
  pthread_join(server, NULL);
  destroy_qps();
  NEED(ibv_destroy_cq(messages) == 0 && ibv_destroy_cq(answers) == 0);
  close_all();
  return 0;
}
