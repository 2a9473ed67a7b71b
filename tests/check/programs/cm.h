/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A connection of rdma_cm within one process, up to the request: `in` has to accept it.
 */
#ifndef VERBENA_TESTS_CHECK_CM_H
#define VERBENA_TESTS_CHECK_CM_H

#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

#include "common.h"

static struct rdma_event_channel* events;
static struct rdma_cm_id *listener, *in, *out;

/* The next event, acknowledged; returns its id. */
static inline struct rdma_cm_id* event(enum rdma_cm_event_type expected) {
  struct rdma_cm_event* one;
  NEED(rdma_get_cm_event(events, &one) == 0);
  NEED(one->event == expected);
  struct rdma_cm_id* id = one->id;
  NEED(rdma_ack_cm_event(one) == 0);
  return id;
}

static inline void make_cm_qp(struct rdma_cm_id* id) {
  struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .cap = cap, .qp_type = IBV_QPT_RC};
  NEED(rdma_create_qp(id, pd, &attr) == 0);
}

static inline void request_connection(void) {
  struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  struct rdma_conn_param parameters = {.initiator_depth = 1, .responder_resources = 1, .retry_count = 1, .rnr_retry_count = 7};
  events = rdma_create_event_channel();
  NEED(events != NULL && rdma_create_id(events, &listener, NULL, RDMA_PS_TCP) == 0);
  NEED(rdma_bind_addr(listener, (struct sockaddr*)&where) == 0 && rdma_listen(listener, 1) == 0);
  where.sin_port = rdma_get_src_port(listener);
  NEED(rdma_create_id(events, &out, NULL, RDMA_PS_TCP) == 0);
  NEED(rdma_resolve_addr(out, NULL, (struct sockaddr*)&where, 2000) == 0);
  event(RDMA_CM_EVENT_ADDR_RESOLVED);
  NEED(rdma_resolve_route(out, 2000) == 0);
  event(RDMA_CM_EVENT_ROUTE_RESOLVED);
  ctx = out->verbs;
  pd = ibv_alloc_pd(ctx);
  NEED(pd != NULL);
  make_memory(kAll);
  make_queues();
  make_cm_qp(out);
  NEED(rdma_connect(out, &parameters) == 0);
  in = event(RDMA_CM_EVENT_CONNECT_REQUEST);
  make_cm_qp(in);
}

static inline void accept_connection(void) {
  struct rdma_conn_param parameters = {.initiator_depth = 1, .responder_resources = 1, .rnr_retry_count = 7};
  NEED(rdma_accept(in, &parameters) == 0);
}

static inline void await_both(void) {
  event(RDMA_CM_EVENT_ESTABLISHED);
  event(RDMA_CM_EVENT_ESTABLISHED);
}

static inline void close_qp_of(struct rdma_cm_id* id) {
  if (id->qp != NULL) rdma_destroy_qp(id);
}

static inline void close_verbs(void) {
  NEED(ibv_destroy_cq(cq) == 0 && ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0);
  free(buf);
}

static inline void close_connection(void) {
  close_qp_of(in);
  close_qp_of(out);
  NEED(rdma_destroy_id(in) == 0 && rdma_destroy_id(out) == 0 && rdma_destroy_id(listener) == 0);
  close_verbs();
  rdma_destroy_event_channel(events);
}

#endif
