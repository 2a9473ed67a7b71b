/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

#include <pthread.h>

/* Of two queues on a channel one is armed: the other is looked at after its event. */
static struct ibv_cq* other;

static void* rescue(void* unused) {
  until_reported("wait-unarmed");
  if (wrong) NEED(ibv_req_notify_cq(cq, 0) == 0);
  NEED(receive_bytes(qp[1], 3, buf + kSize + 64, 64) == 0 && send_bytes(qp[0], buf, 32) == 0);
  return unused;
}

int main(int argc, char** argv) {
  begin(argc, argv);
  with_channel = 1;
  open_device();
  make_memory(kAll);
  make_queues();
  other = ibv_create_cq(ctx, entries, NULL, channel, 0);
  NEED(other != NULL);
  for (int i = 0; i < 2; ++i) {
    struct ibv_qp_init_attr attr = {.send_cq = i == 0 ? other : cq, .recv_cq = cq, .cap = cap, .qp_type = type, .sq_sig_all = 0};
    qp[i] = ibv_create_qp(pd, &attr);
    NEED(qp[i] != NULL && to_init(qp[i]) == 0);
  }
  connect_pair();
  NEED(receive_bytes(qp[1], 2, buf + kSize, 64) == 0 && send_bytes(qp[0], buf, 32) == 0);
  completions(1);
  if (!wrong) NEED(ibv_req_notify_cq(cq, 0) == 0);
  pthread_t thread;
  struct ibv_cq* which;
  void* context;
  NEED(pthread_create(&thread, NULL, rescue, NULL) == 0);
  NEED(ibv_get_cq_event(channel, &which, &context) == 0 && which == cq);
  ibv_ack_cq_events(which, 1);
  pthread_join(thread, NULL);
  completions(1);
  cq = other;
  completions(2);
  cq = which;
  destroy_qps();
  NEED(ibv_destroy_cq(other) == 0);
  close_all();
  return 0;
}
