/* SPDX-License-Identifier: BSD-2-Clause */
#include "common.h"

/* A list of receives: of several ranges, without a whole page, and one that brings immediate data only. The second
 * queue pair sends what it has received. */
static struct ibv_mr* own;

static struct ibv_sge range(char* begin, uint32_t length) {
  return (struct ibv_sge){.addr = (uintptr_t)begin, .length = length, .lkey = own->lkey};
}

int main(int argc, char** argv) {
  begin(argc, argv);
  open_pair();
  char* const pages = aligned_alloc(4096, 16 * kSize);
  NEED(pages != NULL);
  memset(pages, 1, 16 * kSize);
  for (int i = 0; i < 2 * kSize; ++i) buf[i] = (char)(i / 16);
  own = ibv_reg_mr(pd, pages, 16 * kSize, IBV_ACCESS_LOCAL_WRITE);
  NEED(own != NULL);
  struct ibv_sge ranges[2] = {range(pages, 100), range(pages + kSize, 8000)};
  struct ibv_sge small = range(pages + 12100, 64), unused = range(pages + 4 * kSize, 4 * kSize), last = range(pages + 8 * kSize, 3 * kSize);
  struct ibv_recv_wr wr[4] = {{.wr_id = 1, .next = &wr[1], .sg_list = ranges, .num_sge = 2},
                              {.wr_id = 2, .next = &wr[2], .sg_list = &small, .num_sge = 1},
                              {.wr_id = 3, .next = &wr[3], .sg_list = &unused, .num_sge = 1},
                              {.wr_id = 4, .sg_list = &last, .num_sge = 1}}, *bad;
  NEED(ibv_post_recv(qp[1], wr, &bad) == 0);
  NEED(send_bytes(qp[0], buf, 8000) == 0 && send_bytes(qp[0], buf, 64) == 0);
  completions(4);
  NEED(memcmp(pages, buf, 100) == 0 && memcmp(pages + kSize, buf + 100, 7900) == 0 && pages[kSize + 7900] == 1);
  NEED(memcmp(pages + 12100, buf, 64) == 0);
  struct ibv_sge sge = sge_of(buf, 0);
  struct ibv_send_wr write = remote_wr(&sge, IBV_WR_RDMA_WRITE_WITH_IMM);
  write.num_sge = 0;
  NEED(post(qp[0], &write) == 0);
  completions(2);
  NEED(pages[4 * kSize] == 1 && pages[8 * kSize - 1] == 1);
  /* The fourth is outstanding. Its bytes may be read when its completion is there, by a request as well. */
  if (wrong) (void)*(volatile char*)(pages + 9 * kSize);
  NEED(send_bytes(qp[0], buf, 8192) == 0);
  completions(2);
  struct ibv_recv_wr back = {.wr_id = 5, .sg_list = &unused, .num_sge = 1};
  NEED(ibv_post_recv(qp[0], &back, &bad) == 0);
  struct ibv_sge received = range(pages + 8 * kSize, 8192);
  struct ibv_send_wr reply = send_wr(&received, IBV_WR_SEND, IBV_SEND_SIGNALED);
  NEED(post(qp[1], &reply) == 0);
  completions(2);
  NEED(memcmp(pages + 4 * kSize, buf, 8192) == 0);
  /* A receive that is never used. */
  NEED(ibv_post_recv(qp[1], &wr[3], &bad) == 0);
  destroy_qps();
  NEED(memcmp(pages + 8 * kSize, buf, 8192) == 0);
  NEED(ibv_dereg_mr(own) == 0);
  free(pages);
  close_all();
  return 0;
}
