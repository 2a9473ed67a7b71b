// SPDX-License-Identifier: BSD-2-Clause
//
// rdma_resolve_addr(3) and rdma_resolve_route(3), sentence by sentence.
//
// clang-format off
// | the pages say | case |
// | --- | --- |
// | resolve destination and optional source addresses to an RDMA address | clause rdma_resolve_addr.event |
// | if successful, the id will be bound to a local device | TheIdIsBoundToADevice |
// | returns 0 on success, or -1 on error; errno will be set | ASecondTimeIsMinusOneAndEinval, ADestinationThatIsNoneIsMinusOneAndEinval, ASourceOfNobodyHereIsMinusOneAndAnErrno |
// | by the local routing tables, or via ARP | WithoutASourceTheRoutingTablesFindOne |
// | a source address is given: as if rdma_bind_addr were called | clause rdma_resolve_addr.source |
// | no source: bound to one based on the local routing tables | WithoutASourceTheRoutingTablesFindOne |
// | maps the addresses to GIDs | TheAddressesAreMappedToGids |
// | rdma_resolve_route: resolves an RDMA route to the destination | clause rdma_create_id.event-kept |
// | the address must have been resolved already | TheRouteBeforeTheAddressIsMinusOneAndEinval |
// | after rdma_resolve_addr, before rdma_connect | rdma_connect |
// | obtains a path record that is used by the connection | ThePathRecordIsBetweenTheGids |
// clang-format on
#include "async_test.h"

namespace verbena::pages {
namespace {

class RdmaResolveAddr : public IdTest {
 protected:
  void SetUp() override {
    IdTest::SetUp();
    if (!HasFatalFailure()) listener_ = make_listener();
  }
  int resolve_address(const CmId& id, Address* source = nullptr) {
    Address to = address_of(listener_);
    errno = 0;
    return error_of(
        rdma_resolve_addr(id.get(), source != nullptr ? source->get() : nullptr, to.get(), kResolveMs));
  }

  CmId listener_;
};

TEST_F(RdmaResolveAddr, TheIdIsBoundToADevice) {
  const CmId id = make_id();
  ASSERT_EQ(resolve_address(id), 0);
  EXPECT_NE(id->verbs, nullptr);
  EXPECT_EQ(id->port_num, 1);
}

TEST_F(RdmaResolveAddr, ASecondTimeIsMinusOneAndEinval) {
  const CmId id = make_id();
  ASSERT_EQ(resolve_address(id), 0);
  EXPECT_EQ(resolve_address(id), EINVAL);
}

TEST_F(RdmaResolveAddr, ADestinationThatIsNoneIsMinusOneAndEinval) {
  const CmId id = make_id();
  Address to = address_of(listener_);
  to.get()->sa_family = AF_UNIX;
  errno = 0;
  EXPECT_EQ(rdma_resolve_addr(id.get(), nullptr, to.get(), kResolveMs), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(RdmaResolveAddr, ASourceOfNobodyHereIsMinusOneAndAnErrno) {
  const CmId id = make_id();
  Address source("203.0.113.77", 0);
  EXPECT_NE(resolve_address(id, &source), 0);
}

TEST_F(RdmaResolveAddr, WithoutASourceTheRoutingTablesFindOne) {
  const CmId id = make_id();
  ASSERT_EQ(resolve_address(id), 0);
  EXPECT_EQ(text_of(rdma_get_local_addr(id.get())), host_) << "to an address of one's own, from the same";
}

TEST_F(RdmaResolveAddr, TheAddressesAreMappedToGids) {
  const CmId id = make_id();
  ASSERT_EQ(resolve_address(id), 0);
  const rdma_ib_addr& address = id->route.addr.addr.ibaddr;
  in_addr v4;
  ASSERT_EQ(inet_pton(AF_INET, host_.c_str(), &v4), 1);
  EXPECT_EQ(memcmp(address.sgid.raw + 12, &v4, sizeof(v4)), 0);
  EXPECT_EQ(memcmp(address.dgid.raw + 12, &v4, sizeof(v4)), 0);
}

TEST_F(RdmaResolveAddr, TheRouteBeforeTheAddressIsMinusOneAndEinval) {
  const CmId id = make_bound_id();
  errno = 0;
  EXPECT_EQ(rdma_resolve_route(id.get(), kResolveMs), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(RdmaResolveAddr, ThePathRecordIsBetweenTheGids) {
  const CmId id = make_resolved_id(listener_);
  ASSERT_EQ(id->route.num_paths, 1);
  const rdma_ib_addr& address = id->route.addr.addr.ibaddr;
  EXPECT_EQ(memcmp(&id->route.path_rec->sgid, &address.sgid, sizeof(ibv_gid)), 0);
  EXPECT_EQ(memcmp(&id->route.path_rec->dgid, &address.dgid, sizeof(ibv_gid)), 0);
}

}  // namespace
}  // namespace verbena::pages
