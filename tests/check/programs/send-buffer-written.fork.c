/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

#include <sys/wait.h>

/* What a child writes to is not what the request sends. */
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
  NEED(post(qp[0], &wr) == 0); /* no receive: it is outstanding */
  const pid_t child = fork();
  if (child == 0) {
    *(volatile char*)(pages + 5000) = 0; /* as it was */
    _exit(0);
  }
  int status;
  NEED(waitpid(child, &status, 0) == child && status == 0);
  if (wrong) *(volatile char*)(pages + 5000) = 0;
  NEED(receive_bytes(qp[1], 2, buf, 2 * kSize) == 0);
  completions(2);
  NEED(ibv_dereg_mr(own) == 0);
  free(pages);
  close_all();
  return 0;
}
