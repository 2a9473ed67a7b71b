// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_accept(3), sentence by sentence.
//
// clang-format off
// | the page says | case |
// | --- | --- |
// | called from the listening side to accept a connection | clause rdma_connect.established |
// | or datagram service lookup request | clause rdma_get_cm_event.ud-data |
// | returns 0 on success, or -1 on error; errno will be set | OnTheListeningIdItIsMinusOneAndEinval, ASecondTimeItIsMinusOneAndEinval |
// | not called on a listening id, but on the new one of the CONNECT_REQUEST | OnTheListeningIdItIsMinusOneAndEinval |
// | the new id is bound to a specific RDMA device | TheNewIdIsBoundToADevice |
// | may reference the rdma_conn_param of the event directly | TheParametersOfTheEventMayBeGiven |
// | conn_param NULL: the values of the request, adjusted to the hardware | clause rdma_accept.null-param |
// | private_data: copied and passed to the remote side; may be NULL | ThePrivateDataArrive, clause rdma_get_cm_event.no-private-data |
// | private_data_len: may be larger than that requested | ThePrivateDataArrive |
// | responder_resources, initiator_depth | clause rdma_connect.responder-resources, rdma_connect.initiator-depth, ResourcesAndDepthAreTheQueuePairs |
// | must be less than or equal to the device's attributes | MoreThanTheDeviceHasIsMinusOneAndEinval |
// | flow_control: exchanged with the remote peer | CountersAndFlowControlArrive |
// | retry_count: ignored | clause rdma_accept.retry-ignored |
// | rnr_retry_count: of a send operation from the remote peer | CountersAndFlowControlArrive |
// | srq, qp_num: ignored if a QP has been created on the id | TheQueuePairsNumberArrivesWhateverIsSaid |
// | minimum RNR NAK timer, ACK timeout | rdma_connect |
// | the RNR retry count is a 3-bit value | TheRnrRetryCountIsCutToThreeBits |
// | private data is limited to 196 bytes for RDMA_PS_TCP | clause rdma_accept.private-data-limit-tcp, OneByteMoreIsMinusOneAndEinval |
// | or 136 bytes for RDMA_PS_UDP | OneHundredAndThirtySixBytesAreTheMostForUdp |
// clang-format on
#include "async_test.h"

namespace verbena::pages {
namespace {

class RdmaAccept : public AsyncTest {
 protected:
  void ask(rdma_conn_param parameters = parameters_with()) {
    request(parameters);
    ASSERT_NE(passive_, nullptr);
    create_qp(passive_);
  }
  int accept(rdma_conn_param parameters) {
    errno = 0;
    return error_of(rdma_accept(passive_.get(), &parameters));
  }
  Event response() {
    Event event = next_event(active_channel_.get());
    EXPECT_EQ(name_of(event), "RDMA_CM_EVENT_ESTABLISHED");
    return event;
  }
  static ibv_qp_attr queried(ibv_qp* qp) {
    ibv_qp_attr attr = {};
    ibv_qp_init_attr init = {};
    EXPECT_EQ(
        ibv_query_qp(
            qp, &attr,
            IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC, &init),
        0);
    return attr;
  }
};

TEST_F(RdmaAccept, OnTheListeningIdItIsMinusOneAndEinval) {
  const Event event = request();
  rdma_conn_param parameters = parameters_with();
  errno = 0;
  EXPECT_EQ(rdma_accept(listener_.get(), &parameters), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(RdmaAccept, ASecondTimeItIsMinusOneAndEinval) {
  establish();
  EXPECT_EQ(accept(parameters_with()), EINVAL);
}

TEST_F(RdmaAccept, TheNewIdIsBoundToADevice) {
  const Event event = request();
  ASSERT_NE(passive_, nullptr);
  EXPECT_NE(passive_->verbs, nullptr);
  EXPECT_EQ(passive_->port_num, 1);
  EXPECT_EQ(text_of(rdma_get_local_addr(passive_.get())), host_);
  EXPECT_EQ(port_of(passive_), port_of(listener_));
}

TEST_F(RdmaAccept, TheParametersOfTheEventMayBeGiven) {
  const Event event = request();
  ASSERT_NE(passive_, nullptr);
  create_qp(passive_);
  EXPECT_EQ(accept(event->param.conn), 0);
  EXPECT_EQ(response()->status, 0);
}

TEST_F(RdmaAccept, ThePrivateDataArrive) {
  ask();
  ASSERT_EQ(accept(parameters_with("an answer", 10)), 0);
  const Event event = response();
  EXPECT_STREQ(static_cast<const char*>(event->param.conn.private_data), "an answer");
  EXPECT_EQ(event->param.conn.private_data_len, 196) << "all that a REP has room for";
  for (int i = 10; i < event->param.conn.private_data_len; i++)
    EXPECT_EQ(static_cast<const uint8_t*>(event->param.conn.private_data)[i], 0) << i;
}

TEST_F(RdmaAccept, ResourcesAndDepthAreTheQueuePairs) {
  rdma_conn_param parameters = parameters_with();
  parameters.responder_resources = parameters.initiator_depth = 8;
  ask(parameters);
  parameters.responder_resources = 2;
  parameters.initiator_depth = 4;
  ASSERT_EQ(accept(parameters), 0);
  response();
  EXPECT_EQ(queried(passive_->qp).max_dest_rd_atomic, 2);
  EXPECT_EQ(queried(passive_->qp).max_rd_atomic, 4);
  EXPECT_EQ(queried(active_->qp).max_dest_rd_atomic, 4);
  EXPECT_EQ(queried(active_->qp).max_rd_atomic, 2);
}

TEST_F(RdmaAccept, MoreThanTheDeviceHasIsMinusOneAndEinval) {
  ask();
  ibv_device_attr device = {};
  ASSERT_EQ(ibv_query_device(passive_->verbs, &device), 0);
  rdma_conn_param parameters = parameters_with();
  parameters.responder_resources = static_cast<uint8_t>(device.max_qp_rd_atom + 1);
  EXPECT_EQ(accept(parameters), EINVAL);
}

TEST_F(RdmaAccept, CountersAndFlowControlArrive) {
  ask();
  rdma_conn_param parameters = parameters_with();
  parameters.flow_control = 1;
  parameters.rnr_retry_count = 3;
  ASSERT_EQ(accept(parameters), 0);
  const Event event = response();
  EXPECT_EQ(event->param.conn.flow_control, 1);
  EXPECT_EQ(event->param.conn.rnr_retry_count, 3);
  EXPECT_EQ(queried(active_->qp).rnr_retry, 3);
}

TEST_F(RdmaAccept, TheQueuePairsNumberArrivesWhateverIsSaid) {
  ask();
  rdma_conn_param parameters = parameters_with();
  parameters.qp_num = 0x123456;
  parameters.srq = 1;
  ASSERT_EQ(accept(parameters), 0);
  const Event event = response();
  EXPECT_EQ(event->param.conn.qp_num, passive_->qp->qp_num);
  EXPECT_EQ(event->param.conn.srq, 0);
}

TEST_F(RdmaAccept, TheRnrRetryCountIsCutToThreeBits) {
  ask();
  rdma_conn_param parameters = parameters_with();
  parameters.rnr_retry_count = 200;
  ASSERT_EQ(accept(parameters), 0);
  EXPECT_EQ(response()->param.conn.rnr_retry_count, 7);
}

TEST_F(RdmaAccept, OneByteMoreIsMinusOneAndEinval) {
  const uint8_t data[197] = {1};
  ask();
  EXPECT_EQ(accept(parameters_with(data, 197)), EINVAL);
}

class RdmaAcceptUdp : public AsyncTest {
 protected:
  void SetUp() override {
    AsyncTest::SetUp();
    if (HasFatalFailure()) return;
    listener_ = make_listener(RDMA_PS_UDP, passive_channel_.get());
    active_ = make_resolved_id(listener_, RDMA_PS_UDP, active_channel_.get());
    create_qp(active_, IBV_QPT_UD);
    rdma_conn_param parameters = parameters_with();
    ASSERT_EQ(rdma_connect(active_.get(), &parameters), 0) << strerror(errno);
    take_request();
    ASSERT_NE(passive_, nullptr);
    create_qp(passive_, IBV_QPT_UD);
  }
};

TEST_F(RdmaAcceptUdp, OneHundredAndThirtySixBytesAreTheMostForUdp) {
  const uint8_t data[137] = {1};
  rdma_conn_param parameters = parameters_with(data, 136);
  parameters.qp_num = passive_->qp->qp_num;
  ASSERT_EQ(rdma_accept(passive_.get(), &parameters), 0) << strerror(errno);
  const Event event = next_event(active_channel_.get());
  ASSERT_EQ(name_of(event), "RDMA_CM_EVENT_ESTABLISHED");
  EXPECT_EQ(event->param.ud.private_data_len, 136);
}

}  // namespace
}  // namespace verbena::pages
