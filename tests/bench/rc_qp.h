// SPDX-License-Identifier: BSD-2-Clause
//
// RC queue pairs of the first verbs device of any adapter, for the measures. Ends the program with a message
// when something fails.
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>

#include "talk.h"

namespace verbena::bench {

// Port 1 of a device, and the address by which others reach it.
struct Port {
  ibv_port_attr attributes;
  ibv_gid gid;
  uint8_t gid_index;
};

// What a queue pair is connected to.
struct Destination {
  ibv_gid gid;
  uint16_t lid;
};

inline ibv_context* open_first_device() {
  ibv_device** devices = ibv_get_device_list(nullptr);
  if (devices == nullptr || devices[0] == nullptr) die("ibv_get_device_list", "no RDMA device");
  ibv_context* context = ibv_open_device(devices[0]);
  if (context == nullptr) die("ibv_open_device", errno);
  ibv_free_device_list(devices);
  return context;
}

inline Port query_port(ibv_context* context, uint8_t gid_index = 0) {
  Port port{};
  port.gid_index = gid_index;
  if (const int error = ibv_query_port(context, 1, &port.attributes)) die("ibv_query_port", error);
  if (ibv_query_gid(context, 1, gid_index, &port.gid) != 0) die("ibv_query_gid", errno);
  return port;
}

inline ibv_qp* create_rc_qp(ibv_pd* pd, ibv_cq* cq, uint32_t depth, uint32_t inline_bytes = 0) {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = cq;
  attributes.recv_cq = cq;
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap = {depth, depth, 1, 1, inline_bytes};
  ibv_qp* qp = ibv_create_qp(pd, &attributes);
  if (qp == nullptr) die("ibv_create_qp", errno);
  return qp;
}

inline void modify(ibv_qp* qp, ibv_qp_attr attributes, int mask, const char* what) {
  if (const int error = ibv_modify_qp(qp, &attributes, mask)) die(what, error);
}

// The transitions of ibv_modify_qp(3) for RC, from RESET to RTS.
inline void connect(ibv_qp* qp, uint32_t peer, const Destination& destination, const Port& port) {
  ibv_qp_attr init{};
  init.qp_state = IBV_QPS_INIT;
  init.port_num = 1;
  init.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  modify(qp, init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "to INIT");

  ibv_qp_attr ready{};
  ready.qp_state = IBV_QPS_RTR;
  ready.path_mtu = port.attributes.active_mtu;
  ready.dest_qp_num = peer;
  ready.max_dest_rd_atomic = 1;
  ready.min_rnr_timer = 12;
  ready.ah_attr.dlid = destination.lid;
  ready.ah_attr.port_num = 1;
  if (port.attributes.link_layer == IBV_LINK_LAYER_ETHERNET) {
    ready.ah_attr.is_global = 1;
    ready.ah_attr.grh.dgid = destination.gid;
    ready.ah_attr.grh.sgid_index = port.gid_index;
    ready.ah_attr.grh.hop_limit = 64;
  }
  modify(qp, ready,
         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
         "to RTR");

  ibv_qp_attr send{};
  send.qp_state = IBV_QPS_RTS;
  send.timeout = 14;
  send.retry_cnt = 7;
  send.rnr_retry = 7;
  send.max_rd_atomic = 1;
  modify(qp, send,
         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
             IBV_QP_MAX_QP_RD_ATOMIC,
         "to RTS");
}

}  // namespace verbena::bench
