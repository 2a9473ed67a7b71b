// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_notify(3) and rdma_establish(3), sentence by sentence.
//
// clang-format off
// | the pages say | case |
// | --- | --- |
// | rdma_notify: used to notify the librdmacm of asynchronous events on a QP | clause rdma_notify.established |
// | returns 0 on success, or -1 on error; errno will be set | AnEventThatIsNotReportedIsMinusOneAndEinval |
// | EISCONN: established before the call; may safely be ignored | clause rdma_notify.eisconn |
// | a QP may receive data before the connection is established | RdmaNotifyFirstData.* |
// | forces the connection into an established state | clause rdma_notify.established |
// | ensures the delivery of the RDMA_CM_EVENT_ESTABLISHED event | clause rdma_notify.established |
// | events that should be reported: IB_EVENT_COMM_EST | AnEventThatIsNotReportedIsMinusOneAndEinval |
// | rdma_establish: acknowledge a response and complete the establishment, by the active side | clause rdma_establish.response, rdma_establish.passive |
// | will trigger a connection established event on the passive side | clause rdma_establish.response, rdma_establish.passive |
// | should not be used on an id with a QP | EstablishingWithAQueuePairIsMinusOneAndEinval |
// clang-format on
#include "async_test.h"

namespace verbena::pages {
namespace {

class RdmaNotify : public AsyncTest {
 protected:
  // The passive side has accepted, the active one has not fetched the answer.
  void accept() {
    request();
    ASSERT_NE(passive_, nullptr);
    create_qp(passive_);
    rdma_conn_param parameters = parameters_with();
    ASSERT_EQ(rdma_accept(passive_.get(), &parameters), 0) << strerror(errno);
  }
};

// A QP that its id knows nothing of, with a buffer.
struct OwnQp {
  static constexpr size_t kSize = 300;
  Pd pd;
  Cq cq;
  std::vector<uint8_t> bytes;
  Mr mr;
  std::unique_ptr<ibv_qp, Releaser<ibv_destroy_qp>> qp;

  void make(ibv_context* verbs, uint8_t content) {
    pd.reset(ibv_alloc_pd(verbs));
    cq.reset(ibv_create_cq(verbs, 4, nullptr, nullptr, 0));
    ASSERT_NE(pd, nullptr);
    ASSERT_NE(cq, nullptr);
    ibv_qp_init_attr attributes = queue_attributes();
    attributes.send_cq = attributes.recv_cq = cq.get();
    qp.reset(ibv_create_qp(pd.get(), &attributes));
    ASSERT_NE(qp, nullptr) << strerror(errno);
    bytes.assign(kSize, content);
    mr.reset(ibv_reg_mr(pd.get(), bytes.data(), kSize, IBV_ACCESS_LOCAL_WRITE));
    ASSERT_NE(mr, nullptr) << strerror(errno);
  }
  void bring_to(ibv_qp_state state, const CmId& as) const {
    ibv_qp_attr attr = {};
    attr.qp_state = state;
    int mask = 0;
    ASSERT_EQ(rdma_init_qp_attr(as.get(), &attr, &mask), 0) << strerror(errno);
    ASSERT_EQ(ibv_modify_qp(qp.get(), &attr, mask), 0) << state;
  }
  ibv_sge buffer() {
    return {.addr = reinterpret_cast<uintptr_t>(bytes.data()), .length = kSize, .lkey = mr->lkey};
  }
  void receive() {
    ibv_sge sge = buffer();
    ibv_recv_wr wr = {}, *bad = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ASSERT_EQ(ibv_post_recv(qp.get(), &wr, &bad), 0);
  }
  void send() {
    ibv_sge sge = buffer();
    ibv_send_wr wr = {}, *bad = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    ASSERT_EQ(ibv_post_send(qp.get(), &wr, &bad), 0);
  }
};

// The active side takes its QP to RTS and sends before it says that it is ready: the passive side, whose QP
// is in RTR, has the data first.
class RdmaNotifyFirstData : public RdmaNotify {
 protected:
  void SetUp() override {
    RdmaNotify::SetUp();
    if (HasFatalFailure()) return;
    active_ = make_id(RDMA_PS_TCP, active_channel_.get());
    resolve(active_, listener_, active_channel_.get());
    sender_.make(active_->verbs, 0x5a);
    rdma_conn_param parameters = parameters_with();
    parameters.qp_num = sender_.qp->qp_num;
    ASSERT_EQ(rdma_connect(active_.get(), &parameters), 0) << strerror(errno);
    take_request();
    ASSERT_NE(passive_, nullptr);
    receiver_.make(passive_->verbs, 0);
    receiver_.bring_to(IBV_QPS_INIT, passive_);
    receiver_.receive();
    receiver_.bring_to(IBV_QPS_RTR, passive_);
    parameters.qp_num = receiver_.qp->qp_num;
    ASSERT_EQ(rdma_accept(passive_.get(), &parameters), 0) << strerror(errno);
    ASSERT_EQ(next_name(active_channel_.get()), "RDMA_CM_EVENT_CONNECT_RESPONSE");
    for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS})
      sender_.bring_to(state, active_);
    sender_.send();
    expect_communication_established();
    expect_the_data();
    EXPECT_FALSE(has_event(passive_channel_)) << "nobody has said that the connection is established";
  }

  // That nothing more comes of the connection's begin: its end comes next.
  void expect_the_end_next() {
    ASSERT_EQ(rdma_disconnect(active_.get()), 0) << strerror(errno);
    EXPECT_EQ(next_name(passive_channel_.get()), "RDMA_CM_EVENT_DISCONNECTED");
  }

  OwnQp sender_, receiver_;

 private:
  void expect_communication_established() const {
    ASSERT_TRUE(becomes_readable(receiver_.qp->context->async_fd));
    ibv_async_event event = {};
    ASSERT_EQ(ibv_get_async_event(receiver_.qp->context, &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_COMM_EST);
    EXPECT_EQ(event.element.qp, receiver_.qp.get());
    ibv_ack_async_event(&event);
  }
  void expect_the_data() const {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    ibv_wc wc = {};
    int seen = 0;
    while ((seen = ibv_poll_cq(receiver_.cq.get(), 1, &wc)) == 0 &&
           std::chrono::steady_clock::now() < deadline) {
    }
    ASSERT_EQ(seen, 1);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.opcode, IBV_WC_RECV);
    EXPECT_EQ(receiver_.bytes, sender_.bytes);
  }
};

TEST_F(RdmaNotifyFirstData, OfThemItEstablishesOnce) {
  ASSERT_EQ(rdma_notify(passive_.get(), IBV_EVENT_COMM_EST), 0) << strerror(errno);
  ASSERT_EQ(next_name(passive_channel_.get()), "RDMA_CM_EVENT_ESTABLISHED");
  receiver_.bring_to(IBV_QPS_RTS, passive_);
  ASSERT_EQ(rdma_establish(active_.get()), 0) << strerror(errno);
  expect_the_end_next();
}

TEST_F(RdmaNotifyFirstData, WithoutItTheConfirmationDoes) {
  ASSERT_EQ(rdma_establish(active_.get()), 0) << strerror(errno);
  ASSERT_EQ(next_name(passive_channel_.get()), "RDMA_CM_EVENT_ESTABLISHED");
  errno = 0;
  EXPECT_EQ(rdma_notify(passive_.get(), IBV_EVENT_COMM_EST), -1);
  EXPECT_EQ(errno, EISCONN);
  expect_the_end_next();
}

TEST_F(RdmaNotify, AnEventThatIsNotReportedIsMinusOneAndEinval) {
  accept();
  errno = 0;
  EXPECT_EQ(rdma_notify(passive_.get(), IBV_EVENT_SQ_DRAINED), -1);
  EXPECT_EQ(errno, EINVAL);
}

// The page names COMM_EST alone; cm.c, ib_cm_notify, takes this one as well.
TEST_F(RdmaNotify, AMigratedPathIsTakenNoteOfOnceConnected) {
  accept();
  errno = 0;
  EXPECT_EQ(rdma_notify(passive_.get(), IBV_EVENT_PATH_MIG), -1);
  EXPECT_EQ(errno, EINVAL);
  ASSERT_EQ(next_name(active_channel_.get()), "RDMA_CM_EVENT_ESTABLISHED");
  ASSERT_EQ(next_name(passive_channel_.get()), "RDMA_CM_EVENT_ESTABLISHED");
  EXPECT_EQ(rdma_notify(passive_.get(), IBV_EVENT_PATH_MIG), 0) << strerror(errno);
}

TEST_F(RdmaNotify, EstablishingWithAQueuePairIsMinusOneAndEinval) {
  prepare_active();
  errno = 0;
  EXPECT_EQ(rdma_establish(active_.get()), -1);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace
}  // namespace verbena::pages
