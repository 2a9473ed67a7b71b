/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Says whether a WRITE of this device places its bytes in their order: the second half of its target cannot be written, and
 * in their order all of the first half is there before that is seen.
 */
#include "programs/common.h"

#include <sys/mman.h>

int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  char* const pages = mmap(NULL, 2 * kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  NEED(pages != MAP_FAILED);
  struct ibv_mr* const target = ibv_reg_mr(pd, pages, 2 * kSize, kAll);
  NEED(target != NULL && mprotect(pages + kSize, kSize, PROT_NONE) == 0);
  memset(buf, 1, 2 * kSize);
  struct ibv_sge sge = sge_of(buf, 2 * kSize);
  struct ibv_send_wr wr = remote_wr(&sge, IBV_WR_RDMA_WRITE);
  wr.wr.rdma.remote_addr = (uintptr_t)pages;
  wr.wr.rdma.rkey = target->rkey;
  NEED(post(qp[0], &wr) == 0 && completion() != IBV_WC_SUCCESS);
  int placed = 0;
  for (int i = 0; i < kSize; ++i) placed += pages[i];
  puts(placed == kSize ? "in their order" : "in pieces");
  NEED(ibv_dereg_mr(target) == 0 && munmap(pages, 2 * kSize) == 0);
  close_all();
  return 0;
}
