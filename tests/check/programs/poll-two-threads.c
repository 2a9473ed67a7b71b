/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

#include <pthread.h>

static struct ibv_cq_ex* ex;

static void* poll_once(void* unused) {
  struct ibv_poll_cq_attr attr = {0};
  if (ibv_start_poll(ex, &attr) == 0) ibv_end_poll(ex);
  return unused;
}

int main(int argc, char** argv) {
  begin(argc, argv);
  open_device();
  make_memory(kAll);
  struct ibv_cq_init_attr_ex attr = {.cqe = 16, .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS, .flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED};
  ex = ibv_create_cq_ex(ctx, &attr);
  NEED(ex != NULL);
  cq = ibv_cq_ex_to_cq(ex);
  for (int i = 0; i < 2; ++i) {
    qp[i] = make_qp();
    NEED(qp[i] != NULL && to_init(qp[i]) == 0);
  }
  connect_pair();
  NEED(receive_bytes(qp[1], 2, buf + kSize, 64) == 0 && send_bytes(qp[0], buf, 32) == 0);
  struct ibv_poll_cq_attr poll = {0};
  while (ibv_start_poll(ex, &poll) != 0) continue;
  pthread_t thread;
  if (wrong) {
    NEED(pthread_create(&thread, NULL, poll_once, NULL) == 0);
    pthread_join(thread, NULL);
  }
  ibv_end_poll(ex);
  if (!wrong) {
    NEED(pthread_create(&thread, NULL, poll_once, NULL) == 0);
    pthread_join(thread, NULL);
  }
  close_all();
  return 0;
}
