/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

#include <sys/mman.h>

/* also: buffer-unmapped */
int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  char* block = mmap(NULL, 256 * 1024, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  NEED(block != MAP_FAILED);
  struct ibv_mr* region = ibv_reg_mr(pd, block, 256 * 1024, kAll);
  NEED(region != NULL);
  if (wrong) NEED(munmap(block, 256 * 1024) == 0);
  struct ibv_sge sge = sge_of(buf, kSize);
  struct ibv_send_wr wr = remote_wr(&sge, IBV_WR_RDMA_WRITE);
  wr.wr.rdma.remote_addr = (uintptr_t)block;
  wr.wr.rdma.rkey = region->rkey;
  NEED(post(qp[0], &wr) == 0);
  NEED((completion() == IBV_WC_SUCCESS) == !wrong);
  NEED(ibv_dereg_mr(region) == 0);
  if (!wrong) NEED(munmap(block, 256 * 1024) == 0);
  close_all();
  return 0;
}
