/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

#include <pthread.h>

/* IBV_EVENT_QP_LAST_WQE_REACHED of a queue pair with an SRQ. */
static struct ibv_async_event event;

static void* rescue(void* unused) {
  until_reported("events-unacknowledged");
  ibv_ack_async_event(&event);
  return unused;
}

int main(int argc, char** argv) {
  begin(argc, argv);
  with_srq = 1;
  open_pair();
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
  NEED(ibv_modify_qp(qp[0], &attr, IBV_QP_STATE) == 0);
  NEED(ibv_get_async_event(ctx, &event) == 0 && event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED);
  pthread_t thread;
  if (wrong)
    NEED(pthread_create(&thread, NULL, rescue, NULL) == 0);
  else
    ibv_ack_async_event(&event);
  close_all();
  if (wrong) pthread_join(thread, NULL);
  return 0;
}
