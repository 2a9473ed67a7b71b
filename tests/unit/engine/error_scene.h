// SPDX-License-Identifier: BSD-2-Clause
//
// A requester and a responder of any transport, for requests that fail: one call per side of the failure, the
// same for all transports. XRC's responder is the XRC_RECV queue pair and an SRQ of its domain.
#pragma once

#include <fcntl.h>

#include <optional>

#include "engine/objects/context.h"
#include "engine/objects/cq.h"
#include "engine/objects/memory_objects.h"
#include "engine/objects/qp.h"
#include "engine/receive/shared_receive_queue.h"
#include "engine/responder/xrc_target.h"
#include "engine/rules/send_rules.h"
#include "unit/engine/datagram_scene.h"

namespace verbena {

enum class TransportType : uint8_t { kRc, kUc, kUd, kXrc };
inline constexpr const char* kTransportNames[] = {"Rc", "Uc", "Ud", "Xrc"};

// The limits that the table of errors needs: small, so that they can be exceeded.
inline DeviceTableOptions error_device() {
  DeviceTableOptions options{.count = 2};
  options.limits.max_msg_sz = 8192;
  options.limits.active_mtu = 1024;
  return options;
}

class ErrorScene {
 public:
  explicit ErrorScene(TransportType transport) : transport_(transport) {
    make_objects();
    connect_both({});
    // What the requests before the failing one send.
    local.fill(1);
  }
  ~ErrorScene() {
    uint32_t events = 0;
    int error = transport_ == TransportType::kXrc ? close_qp(responder_, 0xb, &events) : 0;
    EXPECT_EQ(error, 0);
    owned_responder_.reset();
    requester_.reset();
    error = srq_ != nullptr ? destroy_srq(srq_, &events) : 0;
    EXPECT_EQ(error, 0);
    error = xrcd_ != nullptr ? close_xrcd(xrcd_) : 0;
    EXPECT_EQ(error, 0);
  }
  ErrorScene(const ErrorScene&) = delete;
  ErrorScene& operator=(const ErrorScene&) = delete;

  TransportType transport() const { return transport_; }
  bool acknowledged() const { return transport_ == TransportType::kRc || transport_ == TransportType::kXrc; }

  struct Wanted {
    uint8_t timeout = 0, retry_cnt = 1, rnr_retry = 7;
    uint8_t max_rd_atomic = 1, max_dest_rd_atomic = 1;
    unsigned access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    uint32_t rq_psn = 0;
    uint32_t peer = 0;  // the QP number of another peer; 0: the responder's
  };
  // Connects both queue pairs again, with other attributes.
  void begin_again(const Wanted& wanted) {
    EXPECT_EQ(to_state(requester(), IBV_QPS_RESET), 0);
    EXPECT_EQ(to_state(responder_, IBV_QPS_RESET), 0);
    connect_both(wanted);
  }

  Qp* requester() const { return requester_.get(); }
  Qp* responder() const { return responder_; }

  ibv_send_wr request(ibv_wr_opcode opcode, Sges list) {
    sges_ = std::move(list);
    ibv_send_wr wr = verbena::request(opcode, sges_, 77);
    if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
      wr.wr.atomic = {remote.address(), 1, 1, remote.rkey()};
    else if (transport_ == TransportType::kUd)
      wr.wr.ud = {address.ah(), qp_number(responder_), kQkey};
    else
      wr.wr.rdma = {remote.address(), remote.rkey()};
    if (transport_ == TransportType::kXrc) wr.qp_type.xrc.remote_srqn = srq_number(srq_);
    return wr;
  }
  int post(const ibv_send_wr& wr) { return verbena::post(requester(), wr); }
  void post_receive(Sges list) {
    if (transport_ != TransportType::kXrc) {
      EXPECT_EQ(receive(responder_, std::move(list), 88), 0);
      return;
    }
    ibv_recv_wr wr{88, nullptr, list.data(), static_cast<int>(list.size())};
    ibv_recv_wr* bad = nullptr;
    EXPECT_EQ(post_srq_recv(srq_, &wr, &bad), 0);
  }
  ibv_qp_state state_of(Qp* qp) const {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    EXPECT_EQ(query_qp(qp, &attr, &init), 0);
    return attr.qp_state;
  }
  Srq* srq() const { return srq_; }

  TemporaryNode node{error_device()};
  Owned<Context> context = open_device();
  Owned<Pd> pd = make_pd(context.get()), other_pd = make_pd(context.get());
  Region local{pd.get(), 16384}, remote{pd.get(), 16384};
  Owned<Cq> send_cq = make_cq(context.get(), 64), recv_cq = make_cq(context.get(), 64);
  Address address{pd.get(), address_of(gid())};

  const GidEntry& gid() const { return node.directory().devices().devices[0].ports[0].gids[0]; }

 private:
  ibv_qp_type type() const {
    constexpr ibv_qp_type kTypes[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND};
    return kTypes[static_cast<size_t>(transport_)];
  }
  Qp* make_qp_of(uint64_t handle, Cq* receives) {
    ibv_qp_init_attr init{};
    init.cap = {16, 16, 4, 4, 0};
    init.qp_type = type();
    Qp* qp = nullptr;
    EXPECT_EQ(create_qp(pd.get(), &init, send_cq.get(), transport_ == TransportType::kXrc ? nullptr : receives,
                        handle, &qp),
              0);
    return qp;
  }
  void make_objects() {
    requester_.reset(make_qp_of(0xa, send_cq.get()));  // it receives nothing
    if (transport_ != TransportType::kXrc) {
      owned_responder_.reset(make_qp_of(0xb, recv_cq.get()));
      responder_ = owned_responder_.get();
      return;
    }
    ASSERT_EQ(open_xrcd(context.get(), -1, O_CREAT, &xrcd_), 0);
    ibv_srq_attr attr{16, 4, 0};
    ASSERT_EQ(create_srq(pd.get(), &attr, {xrcd_, recv_cq.get()}, 0xc, &srq_), 0);
    ASSERT_EQ(create_xrc_recv_qp(xrcd_, 0xb, &responder_), 0);
  }
  void connect_both(const Wanted& wanted) {
    go_to_rts(requester(), wanted.peer != 0 ? wanted.peer : qp_number(responder_), wanted);
    go_to_rts(responder_, qp_number(requester()), wanted);
  }
  void go_to_rts(Qp* qp, uint32_t dest, const Wanted& wanted) {
    if (transport_ == TransportType::kUd) {
      DatagramScene::start(qp);
      return;
    }
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = wanted.access;
    EXPECT_EQ(modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_256;
    attr.dest_qp_num = dest;
    attr.rq_psn = wanted.rq_psn;
    attr.max_dest_rd_atomic = wanted.max_dest_rd_atomic;
    attr.min_rnr_timer = 1;
    attr.ah_attr = address_of(gid());
    int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    const bool responds = acknowledged() && (transport_ == TransportType::kRc || qp == responder_);
    if (responds) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    EXPECT_EQ(modify_qp(qp, &attr, mask), 0);
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = 0;
    attr.timeout = wanted.timeout;
    attr.retry_cnt = wanted.retry_cnt;
    attr.rnr_retry = wanted.rnr_retry;
    attr.max_rd_atomic = wanted.max_rd_atomic;
    mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    const bool requests = acknowledged() && (transport_ == TransportType::kRc || qp == requester());
    if (acknowledged()) mask |= IBV_QP_TIMEOUT;
    if (requests) mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    EXPECT_EQ(modify_qp(qp, &attr, mask), 0);
  }

  TransportType transport_;
  Sges sges_;
  Owned<Qp> requester_, owned_responder_;
  Qp* responder_ = nullptr;
  Srq* srq_ = nullptr;
  Xrcd* xrcd_ = nullptr;
};

}  // namespace verbena
