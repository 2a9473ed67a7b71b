// SPDX-License-Identifier: BSD-2-Clause
//
// Two connected ends and what tests do with them. Tests use only what can be asked of the far end by
// messages: post, wait for completions, bytes of its buffer, its address and rkey.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <vector>

#include "support/objects.h"
#include "support/transitions.h"

namespace conformance {

// Polls until `count` completions are there. Throws Deviation when they are not within the time (times
// --time-scale).
std::vector<ibv_wc> completions(ibv_cq* cq, size_t count, Where where = Where::current(),
                                std::chrono::milliseconds time = std::chrono::seconds(3));
// The same for one.
ibv_wc completion(ibv_cq* cq, Where where = Where::current());
// Polls for a short while and expects nothing: for what must not happen. No proof, but bounded.
testing::AssertionResult stays_empty(ibv_cq* cq,
                                     std::chrono::milliseconds time = std::chrono::milliseconds(20));

std::string wc_text(const ibv_wc& wc);  // status, opcode, wr_id, byte_len

struct EndsSpec {
  QpSpec qp;
  Path path;
  int access = all_remote_access;  // of the buffers' regions; cut to what the device claims
  size_t buffer = 16384;
  int cq_entries = 64;
  bool separate_cqs = false;  // of send and receive queue
  ibv_comp_channel* channel = nullptr;
};

struct End {
  Pd pd;
  Cq cq, receive_cq;  // receive_cq only with separate_cqs
  Buffer buffer;
  Mr mr;
  Qp qp;
  Ah ah;  // UD: to the other end
  uint32_t other_qpn = 0, qkey = 0;

  explicit End(size_t size) : buffer(size) {}

  ibv_cq* receives() const { return receive_cq ? receive_cq.get() : cq.get(); }
  ibv_sge sge(size_t offset, size_t length) const {
    return {buffer.address(offset), static_cast<uint32_t>(length), mr->lkey};
  }
  // A request of this opcode with one element, signaled, addressed to the other end where it is a datagram.
  ibv_send_wr request(ibv_wr_opcode opcode, ibv_sge* element, uint64_t id = 1) const;
  ibv_send_wr remote(ibv_wr_opcode opcode, ibv_sge* element, const End& other, size_t offset = 0,
                     uint64_t id = 1) const;
  int post(ibv_send_wr& wr) const;  // traced; bad_wr is dropped
  int post_receive(size_t offset, size_t length, uint64_t id = 1) const;
  // 40 for datagrams: where the data begin in a receive buffer.
  size_t data_offset() const { return qp->qp_type == IBV_QPT_UD ? 40 : 0; }
};

class Ends {
 public:
  // Both in RTS. Throws as make_qp and bring_to do.
  explicit Ends(Device& device, const EndsSpec& spec = {}, Where where = Where::current());

  End near, far;
};

}  // namespace conformance
