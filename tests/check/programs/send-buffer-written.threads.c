/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

#include <pthread.h>

/* Two threads write to one page at once: both faults are the checker's, and it sees those of the next request. */
/* also: send-buffer-changed */
enum { kRounds = 200 };

static pthread_barrier_t barrier;
static char* volatile target;

static void* write_too(void* unused) {
  for (int i = 0; i < kRounds; ++i) {
    pthread_barrier_wait(&barrier);
    if (wrong) target[5000] = (char)i;
    pthread_barrier_wait(&barrier);
  }
  return unused;
}

int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  char* const pages = aligned_alloc(4096, 2 * kSize);
  NEED(pages != NULL);
  memset(pages, 0, 2 * kSize);
  struct ibv_mr* const own = ibv_reg_mr(pd, pages, 2 * kSize, 0);
  NEED(own != NULL);
  struct ibv_sge sge = {.addr = (uintptr_t)pages, .length = 2 * kSize, .lkey = own->lkey};
  struct ibv_send_wr wr = send_wr(&sge, IBV_WR_SEND, IBV_SEND_SIGNALED);
  target = pages;
  pthread_t thread;
  NEED(pthread_barrier_init(&barrier, NULL, 2) == 0 && pthread_create(&thread, NULL, write_too, NULL) == 0);
  for (int i = 0; i < kRounds; ++i) {
    NEED(post(qp[0], &wr) == 0); /* no receive: it is outstanding */
    pthread_barrier_wait(&barrier);
    if (wrong) target[5000] = (char)i;
    pthread_barrier_wait(&barrier);
    NEED(receive_bytes(qp[1], 2, buf, 2 * kSize) == 0);
    completions(2);
  }
  NEED(pthread_join(thread, NULL) == 0);
  NEED(ibv_dereg_mr(own) == 0);
  free(pages);
  close_all();
  return 0;
}
