// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_set_option(3), sentence by sentence.
//
// | the page says | case |
// | --- | --- |
// | sets communication options for an id | each below |
// | RDMA_OPTION_ID_TOS: size of uint8_t | TheServiceTypeIsInTheAddress, AServiceTypeOfAnotherSizeIsEinval |
// | RDMA_OPTION_ID_REUSEADDR: others may bind to the same address; size of int |
// ReusedAddressesMayBeBoundTwice, OtherwiseTheyMayNot | | RDMA_OPTION_ID_AFONLY: IPV6_V6ONLY; size of int |
// WithFamilyOnlyTheOtherFamilysPortIsFree | | RDMA_OPTION_IB_PATH: struct ibv_path_data[] |
// APathOfAnotherSizeIsEinval | | RDMA_OPTION_ID_ACK_TIMEOUT: 4.096 * 2^timeout usec |
// TheAckTimeoutIsTheQueuePairs | | returns 0 on success, or -1 on error; errno will be set |
// AnOptionThatIsNoneIsEnosys |
#include "async_test.h"

namespace verbena::pages {
namespace {

class RdmaSetOption : public AsyncTest {
 protected:
  template <typename Value>
  static int set(const CmId& id, int option, Value value, int level = RDMA_OPTION_ID) {
    errno = 0;
    return error_of(rdma_set_option(id.get(), level, option, &value, sizeof(value)));
  }
};

TEST_F(RdmaSetOption, TheServiceTypeIsInTheAddress) {
  active_ = make_id(RDMA_PS_TCP, active_channel_.get());
  ASSERT_EQ(set(active_, RDMA_OPTION_ID_TOS, uint8_t{0x20}), 0);
  resolve(active_, listener_, active_channel_.get());
  EXPECT_EQ(active_->route.path_rec->traffic_class, 0x20);
}

TEST_F(RdmaSetOption, AServiceTypeOfAnotherSizeIsEinval) {
  EXPECT_EQ(set(make_id(), RDMA_OPTION_ID_TOS, int{0}), EINVAL);
}

TEST_F(RdmaSetOption, ReusedAddressesMayBeBoundTwice) {
  const CmId first = make_id(), second = make_id();
  ASSERT_EQ(set(first, RDMA_OPTION_ID_REUSEADDR, int{1}), 0);
  ASSERT_EQ(set(second, RDMA_OPTION_ID_REUSEADDR, int{1}), 0);
  ASSERT_EQ(rdma_bind_addr(first.get(), address_.get()), 0);
  Address same = address_of(first);
  EXPECT_EQ(rdma_bind_addr(second.get(), same.get()), 0) << strerror(errno);
}

TEST_F(RdmaSetOption, OtherwiseTheyMayNot) {
  const CmId first = make_id(), second = make_id();
  ASSERT_EQ(set(first, RDMA_OPTION_ID_REUSEADDR, int{1}), 0);
  ASSERT_EQ(rdma_bind_addr(first.get(), address_.get()), 0);
  Address same = address_of(first);
  errno = 0;
  EXPECT_EQ(rdma_bind_addr(second.get(), same.get()), -1) << "both must want it";
  EXPECT_EQ(errno, EADDRINUSE);
}

TEST_F(RdmaSetOption, WithFamilyOnlyTheOtherFamilysPortIsFree) {
  const CmId sixth = make_id(), fourth = make_id();
  ASSERT_EQ(set(sixth, RDMA_OPTION_ID_AFONLY, int{1}), 0);
  Address any("::", 0);
  ASSERT_EQ(rdma_bind_addr(sixth.get(), any.get()), 0) << strerror(errno);
  Address other("0.0.0.0", port_of(sixth));
  EXPECT_EQ(rdma_bind_addr(fourth.get(), other.get()), 0) << strerror(errno);
}

TEST_F(RdmaSetOption, APathOfAnotherSizeIsEinval) {
  active_ = make_id(RDMA_PS_TCP, active_channel_.get());
  Address to = address_of(listener_);
  ASSERT_EQ(rdma_resolve_addr(active_.get(), nullptr, to.get(), kResolveMs), 0);
  ASSERT_EQ(next_name(active_channel_.get()), "RDMA_CM_EVENT_ADDR_RESOLVED");
  EXPECT_EQ(set(active_, RDMA_OPTION_IB_PATH, int{0}, RDMA_OPTION_IB), EINVAL);
}

TEST_F(RdmaSetOption, TheAckTimeoutIsTheQueuePairs) {
  active_ = make_id(RDMA_PS_TCP, active_channel_.get());
  ASSERT_EQ(set(active_, RDMA_OPTION_ID_ACK_TIMEOUT, uint8_t{11}), 0);
  resolve(active_, listener_, active_channel_.get());
  create_qp(active_);
  rdma_conn_param parameters = parameters_with();
  ASSERT_EQ(rdma_connect(active_.get(), &parameters), 0);
  take_request();
  create_qp(passive_);
  ASSERT_EQ(rdma_accept(passive_.get(), &parameters), 0);
  ASSERT_EQ(next_name(active_channel_.get()), "RDMA_CM_EVENT_ESTABLISHED");
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  ASSERT_EQ(ibv_query_qp(active_->qp, &attr, IBV_QP_TIMEOUT, &init), 0);
  EXPECT_EQ(attr.timeout, 11);
}

// ucma_set_option_id in Linux (ucma.c): ENOSYS for a level or an option that is none.
TEST_F(RdmaSetOption, AnOptionThatIsNoneIsEnosys) {
  EXPECT_EQ(set(make_id(), 99, int{0}), ENOSYS);
  EXPECT_EQ(set(make_id(), RDMA_OPTION_ID_TOS, uint8_t{0}, 99), ENOSYS);
}

}  // namespace
}  // namespace verbena::pages
