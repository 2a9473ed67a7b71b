/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE
#include "common.h"

#include <sys/mman.h>
#include <sys/uio.h>

/* What the program may not write to, it may not write to afterwards. */
int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  char* const pages = mmap(NULL, 2 * kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  NEED(pages != MAP_FAILED);
  if (!wrong) NEED(mprotect(pages, 2 * kSize, PROT_READ) == 0);
  struct ibv_mr* const own = ibv_reg_mr(pd, pages, 2 * kSize, 0);
  NEED(own != NULL);
  struct ibv_sge sge = {.addr = (uintptr_t)pages, .length = 2 * kSize, .lkey = own->lkey};
  struct ibv_send_wr wr = send_wr(&sge, IBV_WR_SEND, IBV_SEND_SIGNALED);
  NEED(post(qp[0], &wr) == 0); /* no receive: it is outstanding */
  if (wrong) *(volatile char*)(pages + 5000) = 0;
  NEED(receive_bytes(qp[1], 2, buf, 2 * kSize) == 0);
  completions(2);
  char byte = 0;
  const struct iovec from = {&byte, 1}, to = {pages, 1};
  NEED((process_vm_writev(getpid(), &from, 1, &to, 1, 0) == 1) == wrong);
  NEED(ibv_dereg_mr(own) == 0 && munmap(pages, 2 * kSize) == 0);
  close_all();
  return 0;
}
