// SPDX-License-Identifier: BSD-2-Clause
//
// Requests to the far end of the rdma_cm, wherever it is (support/cm.h says what each does). Nothing here
// contains a pointer.
#pragma once

#include <rdma/rdma_cma.h>

#include <cstdint>
#include <string>
#include <vector>

#include "support/messages.h"

namespace conformance::wire {

#define CONFORMANCE_FIELDS(...)                    \
  template <typename Archive>                      \
  void fields([[maybe_unused]] Archive& archive) { \
    archive(__VA_ARGS__);                          \
  }

enum class CmKind : uint16_t {
  open = 100,
  listen,
  reserve,
  take_request,
  accept,
  reject,
  serve,
  served,
  resolve,
  bind,
  connect,
  join,
  leave,
  send_to_group,
  make_qp,
  disconnect,
  set_ece,
  remote_ece,
  event,
  stays_quiet,
  queue,
  local,
  destroy,
  fill,
  bytes,
  post_receive,
  post,
  completion,
};
constexpr uint16_t first_cm_kind = 100, last_cm_kind = 127;

struct Address {
  std::string host;  // numeric; empty: none
  uint16_t port = 0;
  CONFORMANCE_FIELDS(host, port)
};

// Where the far end is. `own` empty: it chooses one of its port's addresses, of this family.
struct CmOpen {
  Address own;
  int32_t family = 0;
  CONFORMANCE_FIELDS(own, family)
};

struct CmAt {
  Address address;  // empty: the far end's own
  rdma_port_space space = RDMA_PS_TCP;
  CONFORMANCE_FIELDS(address, space)
};

struct CmConnection {
  std::vector<uint8_t> data;
  uint8_t responder_resources = 0, initiator_depth = 0, flow_control = 0, retry_count = 0,
          rnr_retry_count = 0, srq = 0;
  uint32_t qp_num = 0;
  CONFORMANCE_FIELDS(data, responder_resources, initiator_depth, flow_control, retry_count, rnr_retry_count,
                     srq, qp_num)
};

struct CmEventFacts {
  rdma_cm_event_type type = RDMA_CM_EVENT_ADDR_RESOLVED;
  int32_t status = 0;
  bool has_data = false;
  CmConnection connection;              // its data are those of a datagram, too
  uint32_t datagram_qpn = 0, qkey = 0;  // the address belongs to the far end's port, and stays there
  Address local, peer;
  CONFORMANCE_FIELDS(type, status, has_data, connection, datagram_qpn, qkey, local, peer)
};

struct CmExpected {
  bool any = true;
  rdma_cm_event_type type = RDMA_CM_EVENT_ADDR_RESOLVED;
  CONFORMANCE_FIELDS(any, type)
};

struct CmEce {
  uint32_t vendor_id = 0, options = 0, comp_mask = 0;
  CONFORMANCE_FIELDS(vendor_id, options, comp_mask)
};

struct CmQuiet {
  bool is_quiet = true;
  std::string seen;
  CONFORMANCE_FIELDS(is_quiet, seen)
};

// The far end's QP, and its memory.
struct CmQueue {
  uint32_t qpn = 0;
  ibv_qp_state state = IBV_QPS_RESET;
  uint8_t timeout = 0, retry_count = 0, rnr_retry = 0, min_rnr_timer = 0, reads = 0, reads_of_the_peer = 0;
  uint64_t address = 0, size = 0;
  uint32_t rkey = 0;
  std::string not_claimed;  // why the state and what follows it are not told; empty: they are
  CONFORMANCE_FIELDS(qpn, state, timeout, retry_count, rnr_retry, min_rnr_timer, reads, reads_of_the_peer,
                     address, size, rkey, not_claimed)
};

struct CmBytes {
  uint64_t offset = 0, length = 0;  // length: of what is read
  std::vector<uint8_t> bytes;
  CONFORMANCE_FIELDS(offset, length, bytes)
};

struct CmPostReceive {
  uint64_t offset = 0, length = 0, id = 1;
  CONFORMANCE_FIELDS(offset, length, id)
};

struct CmPost {
  ibv_wr_opcode opcode = IBV_WR_SEND;
  uint64_t offset = 0, length = 0, address = 0;
  uint32_t rkey = 0;
  CONFORMANCE_FIELDS(opcode, offset, length, address, rkey)
};

struct CmPoll {
  bool receives = false;
  CONFORMANCE_FIELDS(receives)
};

#undef CONFORMANCE_FIELDS

}  // namespace conformance::wire
