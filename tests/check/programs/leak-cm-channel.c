/* SPDX-License-Identifier: BSD-2-Clause */
#include "cm.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  events = rdma_create_event_channel();
  NEED(events != NULL && rdma_create_id(events, &listener, NULL, RDMA_PS_TCP) == 0);
  NEED(rdma_destroy_id(listener) == 0);
  if (!wrong) rdma_destroy_event_channel(events);
  return 0;
}
