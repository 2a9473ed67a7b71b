// SPDX-License-Identifier: BSD-2-Clause
//
// Fixtures that grow in steps: the device, a protection domain, completion queues, a connected pair of RC
// QPs. They use the first device that libibverbs lists; under `verbena run` that is Verbena's.
#pragma once

#include <poll.h>
#include <sched.h>

#include <chrono>
#include <optional>

#include "owned.h"

namespace verbena::test {

inline constexpr std::chrono::seconds kPatience{10};  // bounds every wait
inline constexpr uint8_t kPort = 1;

inline bool becomes_readable(int fd, std::chrono::milliseconds patience = kPatience) {
  pollfd entry = {.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&entry, 1, static_cast<int>(patience.count())) == 1 && (entry.revents & POLLIN) != 0;
}
inline bool is_readable(int fd) { return becomes_readable(fd, std::chrono::milliseconds(0)); }

class DeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    context_ = open_device();
    ASSERT_NE(context_, nullptr) << "no device: these tests run under `verbena run`";
    ASSERT_EQ(ibv_query_device(context_.get(), &device_), 0);
    ASSERT_EQ(ibv_query_port(context_.get(), kPort, &port_), 0);
    ASSERT_EQ(ibv_query_gid(context_.get(), kPort, 0, &gid_), 0);
  }

  static Context open_device() {
    ibv_device** list = ibv_get_device_list(nullptr);
    if (list == nullptr) return nullptr;
    Context context(list[0] != nullptr ? ibv_open_device(list[0]) : nullptr);
    ibv_free_device_list(list);
    return context;
  }

  std::optional<ibv_async_event> next_async_event() {
    ibv_async_event event;
    if (!becomes_readable(context_->async_fd) || ibv_get_async_event(context_.get(), &event) != 0) return {};
    return event;
  }

  Context context_;
  ibv_device_attr device_ = {};
  ibv_port_attr port_ = {};
  ibv_gid gid_ = {};
};

class PdTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (HasFatalFailure()) return;
    pd_.reset(ibv_alloc_pd(context_.get()));
    ASSERT_NE(pd_, nullptr);
  }

  Pd pd_;
};

class CqTest : public PdTest {
 protected:
  void SetUp() override {
    PdTest::SetUp();
    if (HasFatalFailure()) return;
    cq_ = make_cq(64);
    ASSERT_NE(cq_, nullptr);
  }

  Cq make_cq(int cqe, ibv_comp_channel* channel = nullptr) {
    return Cq(ibv_create_cq(context_.get(), cqe, this, channel, 0));
  }

  // The next completion; if none comes, a failure and a completion that no test expects.
  static ibv_wc next_completion(ibv_cq* cq) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    ibv_wc wc = {};
    int polled = 0;
    while ((polled = ibv_poll_cq(cq, 1, &wc)) == 0 && std::chrono::steady_clock::now() < deadline)
      sched_yield();
    if (polled != 1) {
      ADD_FAILURE() << "no completion, ibv_poll_cq answered " << polled;
      wc = {};
      wc.wr_id = UINT64_MAX;
      wc.status = IBV_WC_GENERAL_ERR;
    }
    return wc;
  }
  static ibv_wc_status next_status(ibv_cq* cq) { return next_completion(cq).status; }
  static bool is_empty(ibv_cq* cq) {
    ibv_wc wc;
    return ibv_poll_cq(cq, 1, &wc) == 0;
  }

  ibv_qp_init_attr qp_init(ibv_cq* send_cq, ibv_cq* recv_cq) const {
    ibv_qp_init_attr init = {};
    init.qp_context = nullptr;
    init.send_cq = send_cq;
    init.recv_cq = recv_cq;
    init.cap = {
        .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 4, .max_recv_sge = 4, .max_inline_data = 64};
    init.qp_type = IBV_QPT_RC;
    return init;
  }
  Qp make_qp() {
    ibv_qp_init_attr init = qp_init(cq_.get(), cq_.get());
    return Qp(ibv_create_qp(pd_.get(), &init));
  }

  static ibv_qp_state state_of(ibv_qp* qp) {
    ibv_qp_attr attr = {};
    ibv_qp_init_attr init = {};
    EXPECT_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
    return attr.qp_state;
  }

  Cq cq_;
};

// Settings of a connection that a test may change.
struct Connection {
  int access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  uint8_t timeout = 14;
  uint8_t retry_count = 7;
  uint8_t rnr_retry = 7;       // 7: without end
  uint8_t min_rnr_timer = 12;  // 0.64 ms
  uint8_t max_rd_atomic = 1;
};

inline constexpr int kInitMask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
inline constexpr int kRtrMask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
inline constexpr int kRtsMask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;

class QpTest : public CqTest {
 protected:
  static ibv_qp_attr init_attr(const Connection& connection = {}) {
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_INIT;
    attr.pkey_index = 0;
    attr.port_num = kPort;
    attr.qp_access_flags = static_cast<unsigned>(connection.access);
    return attr;
  }
  ibv_qp_attr rtr_attr(uint32_t peer, const Connection& connection = {}) const {
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = port_.active_mtu;
    attr.dest_qp_num = peer;
    attr.rq_psn = 100;
    attr.max_dest_rd_atomic = connection.max_rd_atomic;
    attr.min_rnr_timer = connection.min_rnr_timer;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.dgid = gid_;
    attr.ah_attr.grh.hop_limit = 1;
    attr.ah_attr.dlid = port_.lid;
    attr.ah_attr.port_num = kPort;
    return attr;
  }
  static ibv_qp_attr rts_attr(const Connection& connection = {}) {
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = connection.timeout;
    attr.retry_cnt = connection.retry_count;
    attr.rnr_retry = connection.rnr_retry;
    attr.sq_psn = 100;
    attr.max_rd_atomic = connection.max_rd_atomic;
    return attr;
  }

  static int to_state(ibv_qp* qp, ibv_qp_state state) {
    ibv_qp_attr attr = {};
    attr.qp_state = state;
    return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
  }
  static int to_init(ibv_qp* qp, const Connection& connection = {}) {
    ibv_qp_attr attr = init_attr(connection);
    return ibv_modify_qp(qp, &attr, kInitMask);
  }
  int to_rtr(ibv_qp* qp, uint32_t peer, const Connection& connection = {}) const {
    ibv_qp_attr attr = rtr_attr(peer, connection);
    return ibv_modify_qp(qp, &attr, kRtrMask);
  }
  static int to_rts(ibv_qp* qp, const Connection& connection = {}) {
    ibv_qp_attr attr = rts_attr(connection);
    return ibv_modify_qp(qp, &attr, kRtsMask);
  }
  // From RESET to RTS, with itself or another as peer.
  void connect(ibv_qp* qp, uint32_t peer, const Connection& connection = {}) const {
    ASSERT_EQ(to_init(qp, connection), 0);
    ASSERT_EQ(to_rtr(qp, peer, connection), 0);
    ASSERT_EQ(to_rts(qp, connection), 0);
  }
};

}  // namespace verbena::test
