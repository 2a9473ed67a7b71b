// SPDX-License-Identifier: BSD-2-Clause
#include "flow.h"

#include <cstring>

#include "../ledger/meeting.h"

namespace verbena::network {
namespace {

constexpr uint32_t kDepth = 64;
constexpr size_t kGrh = 40;
constexpr size_t kSlot = 80 * 1024;
constexpr int kGidIndex = 1;  // the node's address
constexpr uint32_t kPsn = 100, kQkey = 0x11111111;
// Inline in the frame, copied, and in chunks.
constexpr uint32_t kSizes[] = {8, 1000, 70000};

uint32_t size_of(uint64_t number, ibv_qp_type transport) {
  return kSizes[number % (transport == IBV_QPT_UD ? 2 : 3)];
}

uint8_t pattern(uint64_t number, size_t offset) {
  return static_cast<uint8_t>(number * 131 + offset * 7 + (offset >> 8));
}

}  // namespace

Flow::Flow(ibv_context* context, ibv_pd* pd, ibv_cq* cq, const FlowSetup& setup, bool sends)
    : setup_(setup), sends_(sends), pd_(pd), memory_(kDepth * kSlot) {
  region_ = ibv_reg_mr(pd, memory_.data(), memory_.size(), IBV_ACCESS_LOCAL_WRITE);
  if (region_ == nullptr) give_up("ibv_reg_mr");
  ibv_qp_init_attr init = {};
  init.send_cq = init.recv_cq = cq;
  init.qp_type = setup.transport;
  init.sq_sig_all = 1;
  init.cap = {.max_send_wr = kDepth,
              .max_recv_wr = kDepth,
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = 0};
  qp_ = ibv_create_qp(pd, &init);
  if (qp_ == nullptr) give_up("ibv_create_qp");
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qkey = kQkey;
  const int last = setup.transport == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
  if (ibv_modify_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | last) != 0)
    give_up("ibv_modify_qp to INIT");
  if (!sends)
    for (uint32_t i = 0; i < kDepth; ++i) post_receive();
  ibv_port_attr port = {};
  if (ibv_query_gid(context, 1, kGidIndex, &own_.gid) != 0 || ibv_query_port(context, 1, &port) != 0)
    give_up("ibv_query_gid or ibv_query_port");
  own_.qpn = qp_->qp_num;
  own_.mtu = port.active_mtu;
}

void Flow::connect(const Address& peer) {
  peer_qpn_ = peer.qpn;
  ibv_qp_attr attr = {};
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = peer.gid;
  attr.ah_attr.grh.sgid_index = kGidIndex;
  attr.ah_attr.grh.hop_limit = 64;
  attr.path_mtu = static_cast<ibv_mtu>(peer.mtu);
  attr.dest_qp_num = peer.qpn;
  attr.rq_psn = attr.sq_psn = kPsn;
  attr.max_dest_rd_atomic = attr.max_rd_atomic = 1;
  attr.min_rnr_timer = 12;
  attr.timeout = setup_.timeout;
  attr.retry_cnt = setup_.retry_count;
  attr.rnr_retry = 7;
  int rtr = IBV_QP_STATE, rts = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (setup_.transport != IBV_QPT_UD) rtr |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (setup_.transport == IBV_QPT_RC) {
    rtr |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    rts |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  }
  attr.qp_state = IBV_QPS_RTR;
  if (ibv_modify_qp(qp_, &attr, rtr) != 0) give_up("ibv_modify_qp to RTR");
  attr.qp_state = IBV_QPS_RTS;
  if (ibv_modify_qp(qp_, &attr, rts) != 0) give_up("ibv_modify_qp to RTS");
  if (setup_.transport == IBV_QPT_UD && (ah_ = ibv_create_ah(pd_, &attr.ah_attr)) == nullptr)
    give_up("ibv_create_ah");
}

uint8_t* Flow::slot(uint64_t number) { return memory_.data() + number % kDepth * kSlot; }

void Flow::post_receive() {
  ibv_sge sge = {reinterpret_cast<uintptr_t>(slot(received_)), kSlot, region_->lkey};
  ibv_recv_wr wr = {}, *bad = nullptr;
  wr.wr_id = received_++;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  if (ibv_post_recv(qp_, &wr, &bad) != 0) give_up("ibv_post_recv");
}

void Flow::post() {
  if (!sends_ || status_ != IBV_WC_SUCCESS || posted_ - completed_ == kDepth) return;
  const uint64_t number = posted_++;
  const uint32_t size = size_of(number, setup_.transport);
  uint8_t* const bytes = slot(number);
  std::memcpy(bytes, &number, sizeof number);
  for (size_t i = sizeof number; i < size; ++i) bytes[i] = pattern(number, i);
  ibv_sge sge = {reinterpret_cast<uintptr_t>(bytes), size, region_->lkey};
  ibv_send_wr wr = {}, *bad = nullptr;
  wr.wr_id = number;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  if (setup_.transport == IBV_QPT_UD) wr.wr.ud = {.ah = ah_, .remote_qpn = peer_qpn_, .remote_qkey = kQkey};
  if (ibv_post_send(qp_, &wr, &bad) != 0) give_up("ibv_post_send");
}

void Flow::complete(const ibv_wc& wc) {
  if (wc.status != IBV_WC_SUCCESS) {
    if (status_ == IBV_WC_SUCCESS) status_ = wc.status;
    return;
  }
  ++completed_;
  if (sends_) return;
  check(wc);
  post_receive();
}

void Flow::check(const ibv_wc& wc) {
  const size_t before = setup_.transport == IBV_QPT_UD ? kGrh : 0;
  const uint8_t* const bytes = slot(wc.wr_id) + before;
  uint64_t number = 0;
  std::memcpy(&number, bytes, sizeof number);
  std::string wrong;
  if (number < next_) wrong = " comes late, or twice";
  if (wc.byte_len != before + size_of(number, setup_.transport)) wrong = " has another size";
  for (size_t i = sizeof number; wrong.empty() && i < wc.byte_len - before; ++i)
    if (bytes[i] != pattern(number, i)) wrong = " has wrong bytes from " + std::to_string(i);
  if (!wrong.empty() && fault_.empty()) fault_ = "message " + std::to_string(number) + wrong;
  if (number >= next_) missing_ += number - next_;
  next_ = number + 1;
}

}  // namespace verbena::network
