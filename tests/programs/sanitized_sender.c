/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Two connected queue pairs: SEND, WRITE and READ of short and long messages between buffers of malloc(3),
 * whose bytes are then compared. Built with the address sanitizer, whatever the rest is built with. */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                     \
  do {                                                       \
    if (!(condition)) {                                      \
      printf("line %d: not so: %s\n", __LINE__, #condition); \
      return 1;                                              \
    }                                                        \
  } while (0)

enum { kSize = 1 << 20 };

static int connect_to(struct ibv_context* context, struct ibv_qp* qp, uint32_t peer) {
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                             .port_num = 1,
                             .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
  if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0)
    return 1;
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
                              .path_mtu = IBV_MTU_1024,
                              .dest_qp_num = peer,
                              .max_dest_rd_atomic = 1,
                              .min_rnr_timer = 12,
                              .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 1}}};
  if (ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid) != 0) return 1;
  if (ibv_modify_qp(qp, &attr,
                    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) != 0)
    return 1;
  attr = (struct ibv_qp_attr){
      .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
  return ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                           IBV_QP_MAX_QP_RD_ATOMIC);
}

/* The next completion of `cq` is a success. */
static int succeeds(struct ibv_cq* cq) {
  struct ibv_wc wc;
  for (long tries = 0; tries < 500000000; ++tries) {
    const int polled = ibv_poll_cq(cq, 1, &wc);
    if (polled != 0) return polled == 1 && wc.status == IBV_WC_SUCCESS;
  }
  return 0;
}

int main(void) {
  struct ibv_device** devices = ibv_get_device_list(NULL);
  CHECK(devices != NULL && devices[0] != NULL);
  struct ibv_context* context = ibv_open_device(devices[0]);
  CHECK(context != NULL);
  struct ibv_pd* pd = ibv_alloc_pd(context);
  struct ibv_cq* cqs[2];
  struct ibv_qp* qps[2];
  struct ibv_mr* mrs[2];
  char* buffers[2];
  for (int i = 0; i < 2; ++i) {
    cqs[i] = ibv_create_cq(context, 16, NULL, NULL, 0);
    struct ibv_qp_init_attr init = {
        .send_cq = cqs[i], .recv_cq = cqs[i], .cap = {4, 4, 1, 1, 64}, .qp_type = IBV_QPT_RC};
    qps[i] = ibv_create_qp(pd, &init);
    buffers[i] = malloc(kSize);
    mrs[i] = ibv_reg_mr(pd, buffers[i], kSize,
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    CHECK(cqs[i] != NULL && qps[i] != NULL && mrs[i] != NULL);
  }
  for (int i = 0; i < 2; ++i) CHECK(connect_to(context, qps[i], qps[1 - i]->qp_num) == 0);

  const uint32_t sizes[] = {1, 8, 64, 256, 4096, kSize};
  const enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ};
  for (unsigned s = 0; s < sizeof sizes / sizeof *sizes; ++s)
    for (unsigned o = 0; o < sizeof opcodes / sizeof *opcodes; ++o) {
      memset(buffers[0], (int)(s * 16 + o + 1), sizes[s]);
      memset(buffers[1], (int)(s * 16 + o + 101), sizes[s]);
      struct ibv_sge here = {(uintptr_t)buffers[0], sizes[s], mrs[0]->lkey};
      struct ibv_sge there = {(uintptr_t)buffers[1], sizes[s], mrs[1]->lkey};
      struct ibv_recv_wr receive = {.sg_list = &there, .num_sge = 1}, *bad_receive;
      struct ibv_send_wr wr = {.sg_list = &here,
                               .num_sge = 1,
                               .opcode = opcodes[o],
                               .send_flags = IBV_SEND_SIGNALED,
                               .wr = {.rdma = {(uintptr_t)buffers[1], mrs[1]->rkey}}};
      struct ibv_send_wr* bad;
      if (opcodes[o] == IBV_WR_SEND) CHECK(ibv_post_recv(qps[1], &receive, &bad_receive) == 0);
      CHECK(ibv_post_send(qps[0], &wr, &bad) == 0);
      CHECK(succeeds(cqs[0]));
      if (opcodes[o] == IBV_WR_SEND) CHECK(succeeds(cqs[1]));
      CHECK(memcmp(buffers[0], buffers[1], sizes[s]) == 0);
    }

  for (int i = 0; i < 2; ++i) {
    CHECK(ibv_destroy_qp(qps[i]) == 0 && ibv_dereg_mr(mrs[i]) == 0 && ibv_destroy_cq(cqs[i]) == 0);
    free(buffers[i]);
  }
  CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
  ibv_free_device_list(devices);
  puts("all well");
  return 0;
}
