/* SPDX-License-Identifier: BSD-2-Clause */
#include "cm.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  request_connection();
  accept_connection();
  await_both();
  struct ibv_qp* forgotten = in->qp;
  if (!wrong) rdma_destroy_qp(in);
  rdma_destroy_qp(out);
  NEED(rdma_destroy_id(in) == 0 && rdma_destroy_id(out) == 0 && rdma_destroy_id(listener) == 0);
  if (wrong) NEED(ibv_destroy_qp(forgotten) == 0);
  close_verbs();
  rdma_destroy_event_channel(events);
  return 0;
}
