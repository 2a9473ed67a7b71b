/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

/* The allocator writes to memory that is freed. */
/* also: send-buffer-changed buffer-freed registered-freed */
int main(int argc, char** argv) {
  begin(argc, argv);
  rnr_retry = 7;
  open_pair();
  char* const pages = aligned_alloc(4096, 4 * kSize);
  NEED(pages != NULL);
  memset(pages, 0, 4 * kSize);
  struct ibv_mr* const own = ibv_reg_mr(pd, pages, 4 * kSize, 0);
  NEED(own != NULL);
  struct ibv_sge sge = {.addr = (uintptr_t)pages, .length = 4 * kSize, .lkey = own->lkey};
  struct ibv_send_wr wr = send_wr(&sge, IBV_WR_SEND, IBV_SEND_SIGNALED);
  NEED(post(qp[0], &wr) == 0); /* no receive: it is outstanding */
  if (wrong) {
    pages[0] = 'x';
    free(pages);
  }
  struct ibv_wc wc;
  NEED(ibv_poll_cq(cq, 1, &wc) == 0);
  destroy_qps();
  NEED(ibv_dereg_mr(own) == 0);
  if (!wrong) free(pages);
  close_all();
  return 0;
}
