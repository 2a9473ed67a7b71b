/* SPDX-License-Identifier: BSD-2-Clause */
#include <pthread.h>
#include <stdatomic.h>

#include "common.h"

static atomic_int stop;

/* Counts at the other end: in the bytes that the WRITEs change, or beside them. */
static void* count(void* at) {
  for (volatile char* byte = at; !atomic_load(&stop);) ++*byte;
  return NULL;
}

int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  struct ibv_sge sge = sge_of(buf, 8);
  struct ibv_send_wr wr = remote_wr(&sge, IBV_WR_RDMA_WRITE);
  pthread_t other;
  NEED(pthread_create(&other, NULL, count, buf + kSize + (wrong ? 3 : 8)) == 0);
  for (int i = 0; i < 200; ++i) {
    NEED(post(qp[0], &wr) == 0);
    completions(1);
  }
  atomic_store(&stop, 1);
  NEED(pthread_join(other, NULL) == 0);
  close_all();
  return 0;
}
