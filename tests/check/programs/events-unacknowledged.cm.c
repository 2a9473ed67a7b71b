/* SPDX-License-Identifier: BSD-2-Clause */
#include "cm.h"

#include <pthread.h>

static struct rdma_cm_event* kept;

static void* rescue(void* unused) {
  until_reported("events-unacknowledged");
  NEED(rdma_ack_cm_event(kept) == 0);
  return unused;
}

int main(int argc, char** argv) {
  begin(argc, argv);
  struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(1)};
  events = rdma_create_event_channel();
  NEED(events != NULL && rdma_create_id(events, &out, NULL, RDMA_PS_TCP) == 0);
  NEED(rdma_resolve_addr(out, NULL, (struct sockaddr*)&where, 2000) == 0);
  NEED(rdma_get_cm_event(events, &kept) == 0 && kept->event == RDMA_CM_EVENT_ADDR_RESOLVED);
  pthread_t thread;
  if (wrong)
    NEED(pthread_create(&thread, NULL, rescue, NULL) == 0);
  else
    NEED(rdma_ack_cm_event(kept) == 0);
  NEED(rdma_destroy_id(out) == 0);
  if (wrong) pthread_join(thread, NULL);
  rdma_destroy_event_channel(events);
  return 0;
}
