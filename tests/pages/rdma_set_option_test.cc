// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_set_option(3), sentence by sentence.
//
// clang-format off
// | the page says | case |
// | --- | --- |
// | sets communication options for an id | each below |
// | RDMA_OPTION_ID_TOS: size of uint8_t | TheServiceTypeIsInTheAddress, AServiceTypeOfAnotherSizeIsEinval |
// | RDMA_OPTION_ID_REUSEADDR: others may bind to the same address; size of int | clause rdma_set_option.reuseaddr, OtherwiseTheyMayNot |
// | RDMA_OPTION_ID_AFONLY: IPV6_V6ONLY; size of int | WithFamilyOnlyTheOtherFamilysPortIsFree |
// | RDMA_OPTION_IB_PATH: struct ibv_path_data[] | RdmaSetPath.*, APathOfAnotherSizeIsEinval |
// | RDMA_OPTION_ID_ACK_TIMEOUT: 4.096 * 2^timeout usec | clause rdma_set_option.ack-timeout |
// | returns 0 on success, or -1 on error; errno will be set | AnOptionThatIsNoneIsEnosys |
// clang-format on
#include <infiniband/sa.h>

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

// The path of an id whose route the library found, in the wire's format (IBA 15.2.5.16).
ibv_path_data packed(const ibv_sa_path_rec& from) {
  ibv_path_data data = {};
  data.flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL;
  data.path.dgid = from.dgid;
  data.path.sgid = from.sgid;
  data.path.dlid = from.dlid;
  data.path.slid = from.slid;
  data.path.flowlabel_hoplimit = htonl(from.hop_limit);
  data.path.tclass = from.traffic_class;
  data.path.reversible_numpath = 0x81;
  data.path.pkey = from.pkey;
  data.path.mtu = static_cast<uint8_t>(2 << 6 | from.mtu);
  data.path.rate = static_cast<uint8_t>(2 << 6 | from.rate);
  data.path.packetlifetime = static_cast<uint8_t>(2 << 6 | from.packet_life_time);
  return data;
}

// An id whose address alone is resolved, to whom the route is told instead of asked for.
class RdmaSetPath : public RdmaSetOption {
 protected:
  void SetUp() override {
    RdmaSetOption::SetUp();
    if (HasFatalFailure()) return;
    const CmId other = make_resolved_id(listener_, RDMA_PS_TCP, active_channel_.get());
    ASSERT_NE(other->route.path_rec, nullptr);
    path_ = packed(*other->route.path_rec);
    active_ = make_id(RDMA_PS_TCP, active_channel_.get());
    Address to = address_of(listener_);
    ASSERT_EQ(rdma_resolve_addr(active_.get(), nullptr, to.get(), kResolveMs), 0);
    ASSERT_EQ(next_name(active_channel_.get()), "RDMA_CM_EVENT_ADDR_RESOLVED");
  }
  int set_path() { return set(active_, RDMA_OPTION_IB_PATH, path_, RDMA_OPTION_IB); }

  ibv_path_data path_ = {};
};

TEST_F(RdmaSetPath, IsTheRoute) {
  path_.path.mtu = 2 << 6 | IBV_MTU_256;
  path_.path.tclass = 0x48;
  path_.path.packetlifetime = 2 << 6 | 11;
  ASSERT_EQ(set_path(), 0) << strerror(errno);
  ASSERT_EQ(next_name(active_channel_.get()), "RDMA_CM_EVENT_ROUTE_RESOLVED");
  ASSERT_EQ(active_->route.num_paths, 1);
  const ibv_sa_path_rec& route = *active_->route.path_rec;
  EXPECT_EQ(memcmp(&route.dgid, &path_.path.dgid, sizeof route.dgid), 0);
  EXPECT_EQ(memcmp(&route.sgid, &path_.path.sgid, sizeof route.sgid), 0);
  EXPECT_EQ(route.mtu, IBV_MTU_256);
  EXPECT_EQ(route.traffic_class, 0x48);
  EXPECT_EQ(route.packet_life_time, 11);
}

TEST_F(RdmaSetPath, IsTheConnections) {
  path_.path.mtu = 2 << 6 | IBV_MTU_256;
  path_.path.tclass = 0x48;
  ASSERT_EQ(set_path(), 0) << strerror(errno);
  ASSERT_EQ(next_name(active_channel_.get()), "RDMA_CM_EVENT_ROUTE_RESOLVED");
  create_qp(active_);
  rdma_conn_param parameters = parameters_with();
  ASSERT_EQ(rdma_connect(active_.get(), &parameters), 0) << strerror(errno);
  take_request();
  ASSERT_NE(passive_, nullptr);
  create_qp(passive_);
  Memory sent(active_.get(), 1000), received(passive_.get(), 1000);
  ASSERT_EQ(rdma_post_recv(passive_.get(), context_of(3), received.data(), 1000, received.mr()), 0);
  ASSERT_EQ(rdma_accept(passive_.get(), &parameters), 0) << strerror(errno);
  ASSERT_EQ(next_name(active_channel_.get()), "RDMA_CM_EVENT_ESTABLISHED");
  ASSERT_EQ(next_name(passive_channel_.get()), "RDMA_CM_EVENT_ESTABLISHED");
  for (const CmId* id : {&active_, &passive_}) {
    ibv_qp_attr attr = {};
    ibv_qp_init_attr init = {};
    ASSERT_EQ(ibv_query_qp((*id)->qp, &attr, IBV_QP_PATH_MTU | IBV_QP_AV, &init), 0);
    EXPECT_EQ(attr.path_mtu, IBV_MTU_256);
    EXPECT_EQ(attr.ah_attr.grh.traffic_class, 0x48);
  }
  sent.fill(5);
  ASSERT_EQ(rdma_post_send(active_.get(), nullptr, sent.data(), 1000, sent.mr(), 0), 0);
  ibv_wc wc = {};
  ASSERT_EQ(rdma_get_recv_comp(passive_.get(), &wc), 1) << strerror(errno);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.wr_id, 3u);
  EXPECT_TRUE(received.equals(sent, 1000));
}

// ucma_set_ib_path in Linux (ucma.c): the primary path both ways, behind any others.
TEST_F(RdmaSetPath, IsThePrimaryOneOfSeveral) {
  ibv_path_data both[2] = {path_, path_};
  both[0].flags = IBV_PATH_FLAG_ALTERNATE | IBV_PATH_FLAG_BIDIRECTIONAL;
  both[0].path.tclass = 1;
  both[1].path.tclass = 2;
  ASSERT_EQ(error_of(rdma_set_option(active_.get(), RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, both, sizeof both)),
            0);
  ASSERT_EQ(next_name(active_channel_.get()), "RDMA_CM_EVENT_ROUTE_RESOLVED");
  EXPECT_EQ(active_->route.path_rec->traffic_class, 2);
}

TEST_F(RdmaSetPath, WithoutAPrimaryOneIsEinval) {
  path_.flags = IBV_PATH_FLAG_ALTERNATE | IBV_PATH_FLAG_BIDIRECTIONAL;
  EXPECT_EQ(set_path(), EINVAL);
  EXPECT_FALSE(has_event(active_channel_));
}

// rdma_set_ib_path in Linux (cma.c): the address is resolved, the route is not.
TEST_F(RdmaSetPath, ASecondTimeIsEinval) {
  ASSERT_EQ(set_path(), 0) << strerror(errno);
  ASSERT_EQ(next_name(active_channel_.get()), "RDMA_CM_EVENT_ROUTE_RESOLVED");
  EXPECT_EQ(set_path(), EINVAL);
}

TEST_F(RdmaSetPath, BeforeTheAddressIsEinval) {
  active_ = make_bound_id(RDMA_PS_TCP, active_channel_.get());
  EXPECT_EQ(set_path(), EINVAL);
  active_ = make_id(RDMA_PS_TCP, active_channel_.get());
  EXPECT_EQ(set_path(), EINVAL);
}

// ucma_set_option_id in Linux (ucma.c): ENOSYS for a level or an option that is none.
TEST_F(RdmaSetOption, AnOptionThatIsNoneIsEnosys) {
  EXPECT_EQ(set(make_id(), 99, int{0}), ENOSYS);
  EXPECT_EQ(set(make_id(), RDMA_OPTION_ID_TOS, uint8_t{0}, 99), ENOSYS);
}

}  // namespace
}  // namespace verbena::pages
