// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_set_local_ece(3), rdma_get_remote_ece(3) and the hand-shake that librdmacm makes of them, sentence by
// sentence.
//
//  * rdma_get_remote_ece: "get ECE parameters as were received from the communication peer", and
//    rdma_set_local_ece: "set local ECE parameters": ThePeersAreAsItSetThem
//  * "returns 0 on success, or -1 on error" (cma.c: with a QP, or without a vendor): WithAQueuePairIsEinval,
//    WithoutAVendorIsEinval
//  * ibv_query_ece(3): "current ECE state for the QP": OptionsThatBothOfferAreInForce, OptionsOfAnotherVendorAreNot
#include "async_test.h"

namespace verbena::pages {
namespace {

class RdmaSetLocalEce : public AsyncTest {
 protected:
  static ibv_ece ece_of(const CmId& id) {
    ibv_ece ece = {};
    EXPECT_EQ(ibv_query_ece(id->qp, &ece), 0);
    return ece;
  }
  static ibv_ece remote_of(const CmId& id) {
    ibv_ece ece = {};
    EXPECT_EQ(rdma_get_remote_ece(id.get(), &ece), 0) << strerror(errno);
    return ece;
  }
  // An id whose queue pair is the program's own affair has asked, with these parameters.
  void request_with(ibv_ece ece) {
    active_ = make_id(RDMA_PS_TCP, active_channel_.get());
    resolve(active_, listener_, active_channel_.get());
    ASSERT_EQ(rdma_set_local_ece(active_.get(), &ece), 0) << strerror(errno);
    rdma_conn_param parameters = parameters_with();
    parameters.qp_num = 77;
    ASSERT_EQ(rdma_connect(active_.get(), &parameters), 0) << strerror(errno);
    take_request();
    ASSERT_NE(passive_, nullptr);
  }
};

TEST_F(RdmaSetLocalEce, ThePeersAreAsItSetThem) {
  request_with({.vendor_id = 0x123456, .options = 0x89abcdef, .comp_mask = 0});
  const ibv_ece seen = remote_of(passive_);
  EXPECT_EQ(seen.vendor_id, 0x123456u);
  EXPECT_EQ(seen.options, 0x89abcdefu);
}

TEST_F(RdmaSetLocalEce, OptionsOfAnotherVendorAreNot) {
  request_with({.vendor_id = 0x123456, .options = 1, .comp_mask = 0});
  create_qp(passive_);
  EXPECT_EQ(ece_of(passive_).options, 0u);
}

TEST_F(RdmaSetLocalEce, OptionsThatBothOfferAreInForce) {
  prepare_active();
  const ibv_ece offered = ece_of(active_);
  EXPECT_NE(offered.vendor_id, 0u);
  rdma_conn_param parameters = parameters_with();
  ASSERT_EQ(rdma_connect(active_.get(), &parameters), 0) << strerror(errno);
  take_request();
  ASSERT_NE(passive_, nullptr);
  EXPECT_EQ(remote_of(passive_).vendor_id, offered.vendor_id);
  EXPECT_EQ(remote_of(passive_).options, offered.options);
  create_qp(passive_);
  ASSERT_EQ(rdma_accept(passive_.get(), &parameters), 0) << strerror(errno);
  ASSERT_EQ(next_name(active_channel_.get()), "RDMA_CM_EVENT_ESTABLISHED");
  for (const CmId* id : {&active_, &passive_}) EXPECT_EQ(ece_of(*id).options, offered.options);
}

TEST_F(RdmaSetLocalEce, WithAQueuePairIsEinval) {
  prepare_active();
  ibv_ece ece = {.vendor_id = 1, .options = 1, .comp_mask = 0};
  EXPECT_EQ(error_of(rdma_set_local_ece(active_.get(), &ece)), EINVAL);
}

TEST_F(RdmaSetLocalEce, WithoutAVendorIsEinval) {
  active_ = make_id(RDMA_PS_TCP, active_channel_.get());
  ibv_ece ece = {.vendor_id = 0, .options = 1, .comp_mask = 0};
  EXPECT_EQ(error_of(rdma_set_local_ece(active_.get(), &ece)), EINVAL);
}

}  // namespace
}  // namespace verbena::pages
