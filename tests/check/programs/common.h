/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What the programs of the corpus share: a device and two queue pairs of one process, connected to each other. Each
 * program runs as `PROGRAM right` and `PROGRAM wrong`; the two differ in the lines that ask for `wrong`. The rule that
 * `wrong` breaks is the program's name.
 */
#ifndef VERBENA_TESTS_CHECK_COMMON_H
#define VERBENA_TESTS_CHECK_COMMON_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NEED(condition)                                                               \
  do {                                                                                \
    if (!(condition)) {                                                               \
      fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno); \
      exit(1);                                                                        \
    }                                                                                 \
  } while (0)

enum { kSize = 4096, kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };

static int wrong;

/* What a program may change before it calls open_pair(). */
static enum ibv_qp_type type = IBV_QPT_RC;
static struct ibv_qp_cap cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 2, .max_recv_sge = 2, .max_inline_data = 64};
static int sig_all = 0;
static int entries = 32;
static int with_channel = 0;
static int with_srq = 0;
static int access_of_qp = kAll;
static enum ibv_mtu path_mtu = IBV_MTU_1024;
static uint8_t rd_atomic = 1, dest_rd_atomic = 1, rnr_retry = 7, timeout = 14;

static struct ibv_context* ctx;
static struct ibv_pd* pd;
static struct ibv_comp_channel* channel;
static struct ibv_cq* cq;
static struct ibv_srq* srq;
static struct ibv_qp* qp[2]; /* qp[0] sends to qp[1], and the other way round */
static char* buf;            /* kSize bytes for qp[0], then as many for qp[1] */
static struct ibv_mr* mr;    /* of all of them */
static union ibv_gid gid;

static inline void begin(int argc, char** argv) {
  wrong = argc > 1 && strcmp(argv[1], "wrong") == 0;
  alarm(20);
}

static inline void open_device(void) {
  int count = 0;
  struct ibv_device** list = ibv_get_device_list(&count);
  NEED(list != NULL && count > 0);
  ctx = ibv_open_device(list[0]);
  NEED(ctx != NULL);
  ibv_free_device_list(list);
  pd = ibv_alloc_pd(ctx);
  NEED(pd != NULL);
  NEED(ibv_query_gid(ctx, 1, 0, &gid) == 0);
}

static inline void make_memory(int access) {
  buf = aligned_alloc(4096, 2 * kSize);
  NEED(buf != NULL);
  memset(buf, 0, 2 * kSize);
  mr = ibv_reg_mr(pd, buf, 2 * kSize, access);
  NEED(mr != NULL);
}

static inline struct ibv_qp* make_qp(void) {
  struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .srq = srq, .cap = cap, .qp_type = type, .sq_sig_all = sig_all};
  return ibv_create_qp(pd, &attr);
}

static inline int to_init(struct ibv_qp* one) {
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x1234, .qp_access_flags = access_of_qp};
  return ibv_modify_qp(one, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
}

static inline struct ibv_ah_attr address(void) {
  struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1};
  attr.grh.dgid = gid;
  attr.grh.hop_limit = 1;
  return attr;
}

static inline int to_rtr(struct ibv_qp* one, uint32_t dest_qp_num) {
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR, .path_mtu = path_mtu, .dest_qp_num = dest_qp_num, .rq_psn = 7,
                             .max_dest_rd_atomic = dest_rd_atomic, .min_rnr_timer = 1, .ah_attr = address()};
  int mask = IBV_QP_STATE;
  if (type != IBV_QPT_UD) mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (type == IBV_QPT_RC) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  return ibv_modify_qp(one, &attr, mask);
}

static inline int to_rts(struct ibv_qp* one) {
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .sq_psn = 7, .timeout = timeout, .retry_cnt = 1, .rnr_retry = rnr_retry,
                             .max_rd_atomic = rd_atomic};
  int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (type == IBV_QPT_RC) mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  return ibv_modify_qp(one, &attr, mask);
}

static inline void make_queues(void) {
  if (with_channel) {
    channel = ibv_create_comp_channel(ctx);
    NEED(channel != NULL);
  }
  cq = ibv_create_cq(ctx, entries, NULL, channel, 0);
  NEED(cq != NULL);
  if (with_srq) {
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = 8, .max_sge = 2}};
    srq = ibv_create_srq(pd, &attr);
    NEED(srq != NULL);
  }
}

/* Two queue pairs in INIT. */
static inline void open_pair_in_init(void) {
  open_device();
  make_memory(kAll);
  make_queues();
  for (int i = 0; i < 2; ++i) {
    qp[i] = make_qp();
    NEED(qp[i] != NULL && to_init(qp[i]) == 0);
  }
}

static inline void connect_pair(void) {
  for (int i = 0; i < 2; ++i) NEED(to_rtr(qp[i], qp[1 - i]->qp_num) == 0);
  for (int i = 0; i < 2; ++i) NEED(to_rts(qp[i]) == 0);
}

static inline void open_pair(void) {
  open_pair_in_init();
  connect_pair();
}

static inline void destroy_qps(void) {
  for (int i = 0; i < 2; ++i)
    if (qp[i] != NULL) NEED(ibv_destroy_qp(qp[i]) == 0);
  qp[0] = qp[1] = NULL;
}

static inline void close_device(void) {
  if (pd != NULL) NEED(ibv_dealloc_pd(pd) == 0);
  NEED(ibv_close_device(ctx) == 0);
}

static inline void close_all(void) {
  destroy_qps();
  if (srq != NULL) NEED(ibv_destroy_srq(srq) == 0);
  if (cq != NULL) NEED(ibv_destroy_cq(cq) == 0);
  if (channel != NULL) NEED(ibv_destroy_comp_channel(channel) == 0);
  if (mr != NULL) NEED(ibv_dereg_mr(mr) == 0);
  free(buf);
  close_device();
}

static inline struct ibv_sge sge_of(char* at, uint32_t length) {
  struct ibv_sge sge = {.addr = (uintptr_t)at, .length = length, .lkey = mr != NULL ? mr->lkey : 0};
  return sge;
}

static inline struct ibv_send_wr send_wr(struct ibv_sge* sge, enum ibv_wr_opcode opcode, unsigned flags) {
  struct ibv_send_wr wr = {.wr_id = 1, .sg_list = sge, .num_sge = 1, .opcode = opcode, .send_flags = flags};
  return wr;
}

static inline int post(struct ibv_qp* one, struct ibv_send_wr* wr) {
  struct ibv_send_wr* bad;
  return ibv_post_send(one, wr, &bad);
}

/* Sends `length` bytes at `at`, signaled. */
static inline int send_bytes(struct ibv_qp* one, char* at, uint32_t length) {
  struct ibv_sge sge = sge_of(at, length);
  struct ibv_send_wr wr = send_wr(&sge, IBV_WR_SEND, IBV_SEND_SIGNALED);
  return post(one, &wr);
}

static inline int receive_bytes(struct ibv_qp* one, uint64_t wr_id, char* at, uint32_t length) {
  struct ibv_sge sge = sge_of(at, length);
  struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad;
  return ibv_post_recv(one, &wr, &bad);
}

/* A request that reaches qp[1]'s memory. */
static inline struct ibv_send_wr remote_wr(struct ibv_sge* sge, enum ibv_wr_opcode opcode) {
  struct ibv_send_wr wr = send_wr(sge, opcode, IBV_SEND_SIGNALED);
  if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
    wr.wr.atomic.remote_addr = (uintptr_t)(buf + kSize);
    wr.wr.atomic.rkey = mr->rkey;
  } else {
    wr.wr.rdma.remote_addr = (uintptr_t)(buf + kSize);
    wr.wr.rdma.rkey = mr->rkey;
  }
  return wr;
}

/* Waits for one completion, and returns its status. */
static inline enum ibv_wc_status completion(void) {
  struct ibv_wc wc;
  int polled;
  while ((polled = ibv_poll_cq(cq, 1, &wc)) == 0) continue;
  NEED(polled == 1);
  return wc.status;
}

static inline void completions(int count) {
  while (count-- > 0) NEED(completion() == IBV_WC_SUCCESS);
}

/* The two completions of a message that must not arrive; the other end's is of any status. */
static inline void failure(enum ibv_wc_status status) {
  enum ibv_wc_status seen = completion();
  if (seen != status) seen = completion();
  NEED(seen == status);
}

/* Waits until `verbena check` has a finding of `rule`, which is a line of the file that its variable names: at most 10
 * seconds. `right` is not accused: it waits for longer than the second that a thread may wait unremarked. */
static inline void until_reported(const char* rule) {
  const struct timespec pause = {.tv_nsec = 10000000};
  const char* const path = getenv("VERBENA_CHECK");
  char wanted[64], line[65536];
  snprintf(wanted, sizeof wanted, "\"rule\":\"%s\"", rule);
  if (path == NULL) return;
  for (int looks = wrong ? 1000 : 150; looks > 0; --looks) {
    FILE* const file = fopen(path, "r");
    NEED(file != NULL);
    int found = 0;
    while (!found && fgets(line, sizeof line, file) != NULL) found = strstr(line, wanted) != NULL;
    fclose(file);
    if (found) return;
    nanosleep(&pause, NULL);
  }
}

#endif
