/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

/* A server: each client gets a queue pair. */
enum { kClients = 200 };

int main(int argc, char** argv) {
  start(argc, argv);
  open_device();
  make_queues();
  for (int i = 0; i < kClients; ++i) {
    struct ibv_qp* one = make_qp();
    NEED(one != NULL && to_init(one) == 0);
    if (!wrong) NEED(ibv_destroy_qp(one) == 0);
  }
  printf("%d clients have come and gone\n", kClients);
  if (wrong) pause(); /* for the next one */
  close_all();
  return 0;
}
