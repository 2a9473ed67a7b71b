// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_notify(3) and rdma_establish(3), sentence by sentence.
//
// | the pages say | case |
// | --- | --- |
// | rdma_notify: used to notify the librdmacm of asynchronous events on a QP |
// ForcesTheConnectionIntoEstablished | | returns 0 on success, or -1 on error; errno will be set |
// AnEventThatIsNotReportedIsMinusOneAndEinval | | EISCONN: established before the call; may safely be ignored
// | AfterTheConnectionItIsEisconn | | forces the connection into an established state |
// ForcesTheConnectionIntoEstablished | | ensures the delivery of the RDMA_CM_EVENT_ESTABLISHED event |
// ForcesTheConnectionIntoEstablished | | events that should be reported: IB_EVENT_COMM_EST |
// AnEventThatIsNotReportedIsMinusOneAndEinval | | rdma_establish: acknowledge a response and complete the
// establishment, by the active side | WithoutAQueuePairTheActiveSideEstablishes | | will trigger a connection
// established event on the passive side | WithoutAQueuePairTheActiveSideEstablishes | | should not be used on
// an id with a QP | EstablishingWithAQueuePairIsMinusOneAndEinval |
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

TEST_F(RdmaNotify, ForcesTheConnectionIntoEstablished) {
  accept();
  ASSERT_EQ(rdma_notify(passive_.get(), IBV_EVENT_COMM_EST), 0) << strerror(errno);
  EXPECT_EQ(next_name(passive_channel_.get()), "RDMA_CM_EVENT_ESTABLISHED");
}

TEST_F(RdmaNotify, AfterTheConnectionItIsEisconn) {
  establish();
  errno = 0;
  EXPECT_EQ(rdma_notify(passive_.get(), IBV_EVENT_COMM_EST), -1);
  EXPECT_EQ(errno, EISCONN);
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

TEST_F(RdmaNotify, WithoutAQueuePairTheActiveSideEstablishes) {
  active_ = make_id(RDMA_PS_TCP, active_channel_.get());
  resolve(active_, listener_, active_channel_.get());
  rdma_conn_param parameters = parameters_with();
  parameters.qp_num = 77;
  ASSERT_EQ(rdma_connect(active_.get(), &parameters), 0);
  take_request();
  create_qp(passive_);
  ASSERT_EQ(rdma_accept(passive_.get(), &parameters), 0) << strerror(errno);
  ASSERT_EQ(next_name(active_channel_.get()), "RDMA_CM_EVENT_CONNECT_RESPONSE");
  EXPECT_FALSE(has_event(passive_channel_));
  ASSERT_EQ(rdma_establish(active_.get()), 0) << strerror(errno);
  EXPECT_EQ(next_name(passive_channel_.get()), "RDMA_CM_EVENT_ESTABLISHED");
}

TEST_F(RdmaNotify, EstablishingWithAQueuePairIsMinusOneAndEinval) {
  prepare_active();
  errno = 0;
  EXPECT_EQ(rdma_establish(active_.get()), -1);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace
}  // namespace verbena::pages
