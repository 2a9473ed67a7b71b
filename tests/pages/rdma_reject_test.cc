// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_reject(3), sentence by sentence.
//
// clang-format off
// | the page says | case |
// | --- | --- |
// | called from the listening side to reject a connection | TheCallerIsToldRejected |
// | or datagram service lookup request | ADatagramLookupIsUnreachable |
// | returns 0 on success, or -1 on error; errno will be set | OnTheListeningIdItIsMinusOneAndEinval, AfterAcceptingItIsMinusOneAndEinval |
// | after receiving a connection request event | TheCallerIsToldRejected |
// | the specified data will be passed to the remote side | ThePrivateDataArrive |
// | (rdma_get_cm_event(3): the status is the reject reason) | TheReasonIsTheConsumers, WithEceTheReasonIsTheVendorOption |
// | (the caller's QP: cma.c, ucma_modify_qp_err) | TheCallersQueuePairIsInError |
// clang-format on
#include "async_test.h"

namespace verbena::pages {
namespace {

class RdmaReject : public AsyncTest {
 protected:
  Event rejection(const char* words = nullptr) {
    request();
    EXPECT_EQ(
        rdma_reject(passive_.get(), words, words != nullptr ? static_cast<uint8_t>(strlen(words) + 1) : 0), 0)
        << strerror(errno);
    return next_event(active_channel_.get());
  }
};

TEST_F(RdmaReject, TheCallerIsToldRejected) {
  const Event event = rejection();
  EXPECT_EQ(name_of(event), "RDMA_CM_EVENT_REJECTED");
  EXPECT_EQ(event->id, active_.get());
}

TEST_F(RdmaReject, OnTheListeningIdItIsMinusOneAndEinval) {
  errno = 0;
  EXPECT_EQ(rdma_reject(listener_.get(), nullptr, 0), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(RdmaReject, AfterAcceptingItIsMinusOneAndEinval) {
  establish();
  errno = 0;
  EXPECT_EQ(rdma_reject(passive_.get(), nullptr, 0), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(RdmaReject, ThePrivateDataArrive) {
  const Event event = rejection("too busy");
  ASSERT_GE(event->param.conn.private_data_len, 9);
  EXPECT_STREQ(static_cast<const char*>(event->param.conn.private_data), "too busy");
  EXPECT_EQ(event->param.conn.private_data_len, 148) << "all that a REJ has room for";
}

TEST_F(RdmaReject, TheReasonIsTheConsumers) {
  EXPECT_EQ(rejection()->status, 28) << "IB_CM_REJ_CONSUMER_DEFINED";
}

TEST_F(RdmaReject, WithEceTheReasonIsTheVendorOption) {
  request();
  ASSERT_EQ(rdma_reject_ece(passive_.get(), nullptr, 0), 0) << strerror(errno);
  const Event event = next_event(active_channel_.get());
  EXPECT_EQ(name_of(event), "RDMA_CM_EVENT_REJECTED");
  EXPECT_EQ(event->status, 35) << "IB_CM_REJ_VENDOR_OPTION_NOT_SUPPORTED";
}

TEST_F(RdmaReject, TheCallersQueuePairIsInError) {
  rejection();
  EXPECT_EQ(state_of(active_->qp), IBV_QPS_ERR);
}

TEST_F(RdmaReject, ADatagramLookupIsUnreachable) {
  listener_ = make_listener(RDMA_PS_UDP, passive_channel_.get());
  active_ = make_resolved_id(listener_, RDMA_PS_UDP, active_channel_.get());
  rdma_conn_param parameters = parameters_with();
  ASSERT_EQ(rdma_connect(active_.get(), &parameters), 0) << strerror(errno);
  take_request();
  ASSERT_NE(passive_, nullptr);
  ASSERT_EQ(rdma_reject(passive_.get(), "no", 3), 0) << strerror(errno);
  const Event event = next_event(active_channel_.get());
  EXPECT_EQ(name_of(event), "RDMA_CM_EVENT_UNREACHABLE");
  EXPECT_EQ(event->status, 2) << "IB_SIDR_REJECT";
}

}  // namespace
}  // namespace verbena::pages
