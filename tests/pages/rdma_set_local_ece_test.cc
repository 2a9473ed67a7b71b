// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_set_local_ece(3) and rdma_get_remote_ece(3), sentence by sentence.
//
// clang-format off
// | the pages say | case |
// | --- | --- |
// | set local ECE parameters for the REQ | clause rdma_set_local_ece.zero, rdma_get_remote_ece.request |
// | ... and the REP | conformance/chapters/cm_accept.cc |
// | get ECE parameters as received, before replying | clause rdma_set_local_ece.zero, rdma_get_remote_ece.request |
// | for the users of external QPs | WithAQueuePairOfTheIdsItIsMinusOneAndEinval |
// | returns 0 on success, or -1 on error | WithoutAVendorItIsMinusOneAndEinval |
// | (a peer that has set none) | WithoutOptionsTheyAreZero |
// | ibv_query_ece(3): the current ECE state of the QP | OptionsThatBothOfferAreInForce, OptionsOfAnotherVendorAreNot |
// clang-format on
#include "async_test.h"

namespace verbena::pages {
namespace {

constexpr uint32_t kVendor = 0x123456, kOptions = 0x789abcde;  // a vendor ID has 24 bits

class RdmaSetLocalEce : public AsyncTest {
 protected:
  static int set(const CmId& id, uint32_t vendor, uint32_t options) {
    ibv_ece ece = {.vendor_id = vendor, .options = options, .comp_mask = 0};
    errno = 0;
    return error_of(rdma_set_local_ece(id.get(), &ece));
  }
  static ibv_ece remote(const CmId& id) {
    ibv_ece ece = {};
    EXPECT_EQ(rdma_get_remote_ece(id.get(), &ece), 0) << strerror(errno);
    return ece;
  }
  // The queue pair is the program's own; what matters here is its number.
  static rdma_conn_param parameters(uint32_t qp_number) {
    rdma_conn_param p = parameters_with();
    p.qp_num = qp_number;
    return p;
  }
  static ibv_ece in_force(const CmId& id) {
    ibv_ece ece = {};
    EXPECT_EQ(ibv_query_ece(id->qp, &ece), 0);
    return ece;
  }
  void resolve_active() {
    active_ = make_id(RDMA_PS_TCP, active_channel_.get());
    resolve(active_, listener_, active_channel_.get());
  }
  void connect() {
    rdma_conn_param p = parameters(77);
    ASSERT_EQ(rdma_connect(active_.get(), &p), 0) << strerror(errno);
    take_request();
    ASSERT_NE(passive_, nullptr);
  }
};

TEST_F(RdmaSetLocalEce, WithoutOptionsTheyAreZero) {
  resolve_active();
  connect();
  const ibv_ece seen = remote(passive_);
  EXPECT_EQ(seen.vendor_id, 0u);
  EXPECT_EQ(seen.options, 0u);
}

TEST_F(RdmaSetLocalEce, WithoutAVendorItIsMinusOneAndEinval) {
  resolve_active();
  EXPECT_EQ(set(active_, 0, kOptions), EINVAL);
}

TEST_F(RdmaSetLocalEce, WithAQueuePairOfTheIdsItIsMinusOneAndEinval) {
  prepare_active();
  EXPECT_EQ(set(active_, kVendor, kOptions), EINVAL);
}

TEST_F(RdmaSetLocalEce, OptionsOfAnotherVendorAreNot) {
  resolve_active();
  ASSERT_EQ(set(active_, kVendor, 1), 0);
  connect();
  create_qp(passive_);
  EXPECT_EQ(in_force(passive_).options, 0u);
}

TEST_F(RdmaSetLocalEce, OptionsThatBothOfferAreInForce) {
  prepare_active();
  const ibv_ece offered = in_force(active_);
  EXPECT_NE(offered.vendor_id, 0u);
  rdma_conn_param parameters = parameters_with();
  ASSERT_EQ(rdma_connect(active_.get(), &parameters), 0) << strerror(errno);
  take_request();
  ASSERT_NE(passive_, nullptr);
  EXPECT_EQ(remote(passive_).vendor_id, offered.vendor_id);
  EXPECT_EQ(remote(passive_).options, offered.options);
  create_qp(passive_);
  ASSERT_EQ(rdma_accept(passive_.get(), &parameters), 0) << strerror(errno);
  ASSERT_EQ(next_name(active_channel_.get()), "RDMA_CM_EVENT_ESTABLISHED");
  for (const CmId* id : {&active_, &passive_}) EXPECT_EQ(in_force(*id).options, offered.options);
}

}  // namespace
}  // namespace verbena::pages
