// SPDX-License-Identifier: BSD-2-Clause
//
// The attributes that ibv_modify_qp needs to bring the QP of a connection to INIT, RTR and RTS:
// rdma_init_qp_attr in Linux (cma.c: rdma_init_qp_attr, cma_ib_init_qp_attr; cm.c: cm_init_qp_init_attr,
// cm_init_qp_rtr_attr, cm_init_qp_rts_attr). A pure function of the connection's facts.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "cm/paths.h"

namespace verbena::cm {

// The progress of the exchange of messages, as far as QP attributes depend on it (enum ib_cm_state).
enum class Exchange : uint8_t {
  kNone,         // no request sent or received; a UD id: always
  kRequestSent,  // REQ sent: INIT only
  kOpen,         // REQ received, REP sent or received, established: INIT, RTR, RTS
  kOver,         // rejected, disconnecting, time wait: nothing
};

struct QpFacts {
  Exchange exchange;
  ibv_qp_type type;     // RC, UC, UD, XRC_SEND, XRC_RECV
  uint8_t port;         // of the device
  uint16_t pkey_index;  // 0
  uint32_t qkey;        // UD
  uint32_t remote_qpn;
  uint32_t receive_psn;         // rq_psn: our own starting PSN, as sent to the peer
  uint32_t send_psn;            // sq_psn: the peer's
  ibv_ah_attr address;          // address_vector() of the path
  uint8_t path_mtu;             // enum ibv_mtu
  uint8_t responder_resources;  // ours: READs and atomics in flight as responder
  uint8_t initiator_depth;      // ours: the same as requester
  uint8_t retry_count;          // 0 to 7
  uint8_t rnr_retry_count;      // 0 to 7
  uint8_t ack_timeout;          // of the path (ack_timeout_of), 0 to 31
  bool ack_timeout_is_set;      // RDMA_OPTION_ID_ACK_TIMEOUT
  uint8_t set_ack_timeout;      // replaces ack_timeout, if ack_timeout_is_set
};

// `attr->qp_state` is the target state: INIT, RTR or RTS. Writes the fields of `*attr` that `*mask` names,
// with IBV_QP_STATE. Without a connection (Exchange::kNone), and for a UD id, any target state gives the
// attributes for INIT, as in Linux. EINVAL: another state, or one that the exchange does not allow; nothing
// is written.
int connection_qp_attributes(const QpFacts& facts, ibv_qp_attr* attr, int* mask);

}  // namespace verbena::cm
