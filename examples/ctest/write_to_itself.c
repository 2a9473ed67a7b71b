// SPDX-License-Identifier: BSD-2-Clause
//
// A queue pair that is connected to itself writes 64 bytes from one end of a buffer to the other, by RDMA.
//
//   write_to_itself               exit status 0: they arrived
//   write_to_itself --wrong-key   exit status 0: they were refused, for the right reason
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <verbena/vendor_errors.h>

enum { kLength = 64 };

static void require(int condition, const char* what) {
  if (condition) return;
  perror(what);
  exit(1);
}

// Takes the queue pair from RESET to RTS, with itself as its peer (ibv_modify_qp(3)).
static void connect_to_itself(struct ibv_context* context, struct ibv_qp* qp) {
  struct ibv_port_attr port;
  require(ibv_query_port(context, 1, &port) == 0, "ibv_query_port");
  struct ibv_qp_attr attributes = {
      .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
  int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  require(ibv_modify_qp(qp, &attributes, mask) == 0, "to INIT");

  attributes = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
                                    .path_mtu = port.active_mtu,
                                    .dest_qp_num = qp->qp_num,
                                    .max_dest_rd_atomic = 1,
                                    .min_rnr_timer = 12,
                                    .ah_attr = {.port_num = 1, .dlid = port.lid}};
  if (port.link_layer == IBV_LINK_LAYER_ETHERNET) {
    attributes.ah_attr.is_global = 1;
    attributes.ah_attr.grh.hop_limit = 1;
    require(ibv_query_gid(context, 1, 0, &attributes.ah_attr.grh.dgid) == 0, "ibv_query_gid");
  }
  mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  require(ibv_modify_qp(qp, &attributes, mask) == 0, "to RTR");

  attributes = (struct ibv_qp_attr){
      .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
  mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
         IBV_QP_MAX_QP_RD_ATOMIC;
  require(ibv_modify_qp(qp, &attributes, mask) == 0, "to RTS");
}

int main(int argc, char** argv) {
  const int wrong_key = argc > 1 && strcmp(argv[1], "--wrong-key") == 0;
  char buffer[2 * kLength] = {0};
  memset(buffer, 'x', kLength);

  struct ibv_device** devices = ibv_get_device_list(NULL);
  require(devices != NULL && devices[0] != NULL, "no RDMA device");
  struct ibv_context* context = ibv_open_device(devices[0]);
  require(context != NULL, "ibv_open_device");
  struct ibv_pd* pd = ibv_alloc_pd(context);
  require(pd != NULL, "ibv_alloc_pd");
  struct ibv_mr* mr = ibv_reg_mr(pd, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  require(mr != NULL, "ibv_reg_mr");
  struct ibv_cq* cq = ibv_create_cq(context, 1, NULL, NULL, 0);
  require(cq != NULL, "ibv_create_cq");
  struct ibv_qp_init_attr init = {
      .send_cq = cq,
      .recv_cq = cq,
      .qp_type = IBV_QPT_RC,
      .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
  struct ibv_qp* qp = ibv_create_qp(pd, &init);
  require(qp != NULL, "ibv_create_qp");
  connect_to_itself(context, qp);

  struct ibv_sge source = {(uintptr_t)buffer, kLength, mr->lkey};
  struct ibv_send_wr write = {
      .sg_list = &source, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
  write.wr.rdma.remote_addr = (uintptr_t)buffer + kLength;
  write.wr.rdma.rkey = wrong_key ? mr->rkey + 0x100000 : mr->rkey;
  struct ibv_send_wr* refused;
  require(ibv_post_send(qp, &write, &refused) == 0, "ibv_post_send");
  struct ibv_wc completion;
  int polled;
  do polled = ibv_poll_cq(cq, 1, &completion);
  while (polled == 0);
  require(polled == 1, "ibv_poll_cq");
  printf("%s, vendor_err 0x%x\n", ibv_wc_status_str(completion.status), completion.vendor_err);

  const int right =
      wrong_key
          ? completion.status == IBV_WC_REM_ACCESS_ERR && completion.vendor_err == VERBENA_ERR_RKEY_UNKNOWN
          : completion.status == IBV_WC_SUCCESS && memcmp(buffer, buffer + kLength, kLength) == 0;
  require(ibv_destroy_qp(qp) == 0, "ibv_destroy_qp");
  require(ibv_destroy_cq(cq) == 0, "ibv_destroy_cq");
  require(ibv_dereg_mr(mr) == 0, "ibv_dereg_mr");
  require(ibv_dealloc_pd(pd) == 0, "ibv_dealloc_pd");
  require(ibv_close_device(context) == 0, "ibv_close_device");
  ibv_free_device_list(devices);
  return right ? 0 : 1;
}
