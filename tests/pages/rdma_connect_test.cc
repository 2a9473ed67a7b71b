// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_connect(3), sentence by sentence.
//
// clang-format off
// | the page says | case |
// | --- | --- |
// | RDMA_PS_TCP: initiates a connection request to a remote destination | clause rdma_connect.request, rdma_accept.new-id |
// | RDMA_PS_UDP: initiates a lookup of the remote QP providing the datagram service | clause rdma_connect.private-data, rdma_get_cm_event.ud-data |
// | returns 0 on success, or -1 on error; errno will be set | BeforeTheRouteIsResolvedItIsMinusOneAndEinval, NobodyThereIsRejected, InSynchronousOperationARejectionIsEconnrefused |
// | must have resolved a route, by rdma_resolve_route or rdma_create_ep | BeforeTheRouteIsResolvedItIsMinusOneAndEinval |
// | private_data: copied and passed to the remote side | ThePrivateDataArrive |
// | may be NULL | WithoutPrivateDataTheyAreZeroes |
// | private_data_len: may be larger than that requested | ThePrivateDataArrive |
// | responder_resources, initiator_depth: what the local side accepts and has | clause rdma_connect.responder-resources, rdma_connect.initiator-depth |
// | must be less than or equal to the device's attributes | MoreThanTheDeviceHasIsMinusOneAndEinval |
// | the remote endpoint can adjust these values when accepting | rdma_accept |
// | flow_control: exchanged with the remote peer | clause rdma_connect.flow-control, rdma_connect.retry-count, rdma_connect.rnr-retry |
// | retry_count | clause rdma_connect.flow-control, rdma_connect.retry-count, rdma_connect.rnr-retry, clause rdma_connect.retry-count, rdma_accept.retry-ignored |
// | rnr_retry_count: of a send operation from the remote peer | clause rdma_connect.flow-control, rdma_connect.retry-count, rdma_connect.rnr-retry, clause rdma_connect.rnr-retry |
// | srq, qp_num: ignored if a QP has been created on the id | clause rdma_connect.srq-ignored, rdma_connect.qp-num, WithoutAQueuePairTheNumberGivenArrives |
// | the minimum RNR NAK timer is set to 0 | clause rdma_connect.rnr-timer |
// | the local ACK timeout is calculated from packet lifetime and ACK delay | TheAckTimeoutIsSet |
// | retry count and RNR retry count are 3-bit values | CountersAreCutToThreeBits |
// | private data is limited to 56 bytes for RDMA_PS_TCP | FiftySixBytesOfPrivateDataAreTheMost |
// | or 180 bytes for RDMA_PS_UDP | OneHundredAndEightyBytesAreTheMostForUdp |
// | iWARP: the active side sends the first message | not testable: no iWARP device here |
// clang-format on
#include "async_test.h"

namespace verbena::pages {
namespace {

class RdmaConnect : public AsyncTest {
 protected:
  int connect(rdma_conn_param parameters) {
    errno = 0;
    return error_of(rdma_connect(active_.get(), &parameters));
  }
  ibv_qp_attr queried(ibv_qp* qp) const {
    ibv_qp_attr attr = {};
    ibv_qp_init_attr init = {};
    EXPECT_EQ(
        ibv_query_qp(qp, &attr, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MIN_RNR_TIMER,
                     &init),
        0);
    return attr;
  }
};

TEST_F(RdmaConnect, BeforeTheRouteIsResolvedItIsMinusOneAndEinval) {
  active_ = make_id(RDMA_PS_TCP, active_channel_.get());
  Address to = address_of(listener_);
  ASSERT_EQ(rdma_resolve_addr(active_.get(), nullptr, to.get(), kResolveMs), 0);
  ASSERT_EQ(next_name(active_channel_.get()), "RDMA_CM_EVENT_ADDR_RESOLVED");
  create_qp(active_);
  EXPECT_EQ(connect(parameters_with()), EINVAL);
}

TEST_F(RdmaConnect, NobodyThereIsRejected) {
  prepare_active();
  listener_.reset();
  ASSERT_EQ(connect(parameters_with()), 0);
  const Event event = next_event(active_channel_.get());
  EXPECT_EQ(name_of(event), "RDMA_CM_EVENT_REJECTED");
  EXPECT_EQ(event->status, 8) << "IB_CM_REJ_INVALID_SERVICE_ID";
}

TEST_F(RdmaConnect, InSynchronousOperationARejectionIsEconnrefused) {
  CmId id = make_resolved_id(listener_);
  create_qp(id);
  listener_.reset();
  errno = 0;
  EXPECT_EQ(rdma_connect(id.get(), nullptr), -1);
  EXPECT_EQ(errno, ECONNREFUSED);
}

TEST_F(RdmaConnect, ThePrivateDataArrive) {
  const Event event = request(parameters_with("some words", 11));
  ASSERT_NE(event, nullptr);
  ASSERT_GE(event->param.conn.private_data_len, 11);
  EXPECT_STREQ(static_cast<const char*>(event->param.conn.private_data), "some words");
  EXPECT_EQ(event->param.conn.private_data_len, 56) << "all that a REQ has room for";
  for (int i = 11; i < event->param.conn.private_data_len; i++)
    EXPECT_EQ(static_cast<const uint8_t*>(event->param.conn.private_data)[i], 0) << i;
}

// rdma_get_cm_event(3) wants NULL; on InfiniBand and RoCE the private data are always there (Linux, cma.c).
TEST_F(RdmaConnect, WithoutPrivateDataTheyAreZeroes) {
  const Event event = request(parameters_with());
  ASSERT_NE(event, nullptr);
  ASSERT_EQ(event->param.conn.private_data_len, 56);
  for (int i = 0; i < event->param.conn.private_data_len; i++)
    EXPECT_EQ(static_cast<const uint8_t*>(event->param.conn.private_data)[i], 0) << i;
}

TEST_F(RdmaConnect, MoreThanTheDeviceHasIsMinusOneAndEinval) {
  prepare_active();
  ibv_device_attr device = {};
  ASSERT_EQ(ibv_query_device(active_->verbs, &device), 0);
  ASSERT_LT(device.max_qp_rd_atom, 254);
  rdma_conn_param parameters = parameters_with();
  parameters.responder_resources = static_cast<uint8_t>(device.max_qp_rd_atom + 1);
  EXPECT_EQ(connect(parameters), EINVAL);
  parameters = parameters_with();
  parameters.initiator_depth = static_cast<uint8_t>(device.max_qp_init_rd_atom + 1);
  EXPECT_EQ(connect(parameters), EINVAL);
}

TEST_F(RdmaConnect, WithoutAQueuePairTheNumberGivenArrives) {
  active_ = make_id(RDMA_PS_TCP, active_channel_.get());
  resolve(active_, listener_, active_channel_.get());
  rdma_conn_param parameters = parameters_with();
  parameters.qp_num = 0x123456;
  parameters.srq = 1;
  ASSERT_EQ(connect(parameters), 0);
  const Event event = take_request();
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(event->param.conn.qp_num, 0x123456u);
  EXPECT_EQ(event->param.conn.srq, 1);
}

TEST_F(RdmaConnect, TheAckTimeoutIsSet) {
  establish();
  EXPECT_NE(queried(active_->qp).timeout, 0);
  EXPECT_NE(queried(passive_->qp).timeout, 0);
}

TEST_F(RdmaConnect, CountersAreCutToThreeBits) {
  rdma_conn_param parameters = parameters_with();
  parameters.retry_count = 200;
  parameters.rnr_retry_count = 200;
  const Event event = request(parameters);
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(event->param.conn.retry_count, 7);
  EXPECT_EQ(event->param.conn.rnr_retry_count, 7);
}

TEST_F(RdmaConnect, FiftySixBytesOfPrivateDataAreTheMost) {
  prepare_active();
  const uint8_t data[57] = {1};
  EXPECT_EQ(connect(parameters_with(data, 57)), EINVAL);
  EXPECT_EQ(connect(parameters_with(data, 56)), 0);
}

class RdmaConnectUdp : public AsyncTest {
 protected:
  void SetUp() override {
    AsyncTest::SetUp();
    if (HasFatalFailure()) return;
    listener_ = make_listener(RDMA_PS_UDP, passive_channel_.get());
    active_ = make_resolved_id(listener_, RDMA_PS_UDP, active_channel_.get());
    create_qp(active_, IBV_QPT_UD);
  }
};

TEST_F(RdmaConnectUdp, OneHundredAndEightyBytesAreTheMostForUdp) {
  const uint8_t data[181] = {1};
  rdma_conn_param parameters = parameters_with(data, 181);
  errno = 0;
  EXPECT_EQ(rdma_connect(active_.get(), &parameters), -1);
  EXPECT_EQ(errno, EINVAL);
  parameters = parameters_with(data, 180);
  EXPECT_EQ(rdma_connect(active_.get(), &parameters), 0) << strerror(errno);
}

}  // namespace
}  // namespace verbena::pages
