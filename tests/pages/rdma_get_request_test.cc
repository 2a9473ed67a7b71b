// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_get_request(3), sentence by sentence.
//
// clang-format off
// | the page says | case |
// | --- | --- |
// | retrieves a connection request event | clause rdma_get_request.event |
// | if no requests are pending, the call will block until an event is received | clause rdma_get_request.blocks |
// | returns 0 on success, or -1 on error; errno will be set | OnAnAsynchronousIdItIsMinusOneAndEinval |
// | may only be used on listening ids operating synchronously | OnAnAsynchronousIdItIsMinusOneAndEinval |
// | a new id representing the request will be returned | clause rdma_get_request.event, EveryRequestHasAnIdOfItsOwn |
// | it will reference event information associated with the request | clause rdma_get_request.event |
// | until rdma_reject, rdma_accept or rdma_destroy_id | AfterAcceptingItHasAnotherEvent |
// | if QP attributes are associated with the listening endpoint, an allocated QP | rdma_create_ep |
// clang-format on
#include "async_test.h"
#include "connected_test.h"

namespace verbena::pages {
namespace {

class RdmaGetRequest : public AsyncTest {
 protected:
  void SetUp() override {
    AsyncTest::SetUp();
    if (!HasFatalFailure()) listener_ = make_listener();
  }
  CmId call(const char* words = "") {
    CmId id = make_resolved_id(listener_, RDMA_PS_TCP, active_channel_.get());
    create_qp(id);  // a second request for the same QP would be stale
    rdma_conn_param parameters = parameters_with(words, strlen(words) + 1);
    EXPECT_EQ(rdma_connect(id.get(), &parameters), 0) << strerror(errno);
    return id;
  }
  CmId take() {
    rdma_cm_id* id = nullptr;
    EXPECT_EQ(rdma_get_request(listener_.get(), &id), 0) << strerror(errno);
    return CmId(id);
  }
};

TEST_F(RdmaGetRequest, OnAnAsynchronousIdItIsMinusOneAndEinval) {
  const CmId listener = make_listener(RDMA_PS_TCP, passive_channel_.get());
  rdma_cm_id* id = nullptr;
  errno = 0;
  EXPECT_EQ(rdma_get_request(listener.get(), &id), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(RdmaGetRequest, EveryRequestHasAnIdOfItsOwn) {
  const CmId first_caller = call("first"), second_caller = call("second");
  const CmId first = take(), second = take();
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_NE(first, second);
  EXPECT_STREQ(static_cast<const char*>(first->event->param.conn.private_data), "first");
  EXPECT_STREQ(static_cast<const char*>(second->event->param.conn.private_data), "second");
}

class RdmaGetRequestConnected : public ConnectedTest {};

TEST_F(RdmaGetRequestConnected, AfterAcceptingItHasAnotherEvent) {
  ASSERT_NE(passive_->event, nullptr);
  EXPECT_EQ(passive_->event->event, RDMA_CM_EVENT_ESTABLISHED);
}

}  // namespace
}  // namespace verbena::pages
