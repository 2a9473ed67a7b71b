/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  char* const pages = aligned_alloc(4096, 4 * kSize);
  NEED(pages != NULL);
  memset(pages, 1, 4 * kSize);
  memset(buf, 7, 2 * kSize);
  struct ibv_mr* const own = ibv_reg_mr(pd, pages, 4 * kSize, IBV_ACCESS_LOCAL_WRITE); /* peers have no access */
  NEED(own != NULL);
  for (int i = 0; i < 3; ++i) {
    struct ibv_sge sge = {.addr = (uintptr_t)pages + 100, .length = 2 * kSize, .lkey = own->lkey};
    struct ibv_recv_wr wr = {.wr_id = 2, .sg_list = &sge, .num_sge = 1}, *bad;
    NEED(ibv_post_recv(qp[1], &wr, &bad) == 0);
    if (wrong) (void)*(volatile char*)(pages + 5000);
    NEED(pages[99] == 1); /* beside it */
    NEED(send_bytes(qp[0], buf, 2 * kSize - 50 - i) == 0);
    completions(2);
    NEED(pages[99] == 1 && pages[100] == 7 && pages[5000] == 7 && pages[2 * kSize + 49 - i] == 7);
    NEED(pages[2 * kSize + 50 - i] == 1);
    memset(pages, 1, 4 * kSize);
  }
  NEED(ibv_dereg_mr(own) == 0);
  free(pages);
  close_all();
  return 0;
}
