// SPDX-License-Identifier: BSD-2-Clause
//
// QUERY_ROUTE, QUERY and INIT_QP_ATTR: what the response contains, and not a byte beyond its length.
#include <infiniband/ib.h>
#include <infiniband/sa.h>

#include "fixture.h"

namespace verbena::test {
namespace {

class Query : public RdmaCm {
 protected:
  void SetUp() override {
    RdmaCm::SetUp();
    auto& source = reinterpret_cast<sockaddr_in&>(fake.route.source);
    source.sin_family = AF_INET;
    source.sin_port = htons(4660);
    fake.route.node_guid = 0x1122334455667788;
    fake.route.port = 1;
    fake.route.pkey = 0xffff;
    fake.route.source_gid.raw[15] = 1;
    fake.route.destination_gid.raw[15] = 2;
  }
  template <typename Response>
  int ask(uint32_t option, Response* response, size_t room = sizeof(Response)) {
    const rdma_ucm_query request = {.response = address_of(*response), .id = create(), .option = option};
    return channel_.command(RDMA_USER_CM_CMD_QUERY, request, room);
  }
};

TEST_F(Query, RouteWithoutPathsHasTheGids) {
  rdma_ucm_query_route_resp response = {};
  const rdma_ucm_query request = {.response = address_of(response), .id = create(), .option = 0};
  ASSERT_EQ(channel_.command(RDMA_USER_CM_CMD_QUERY_ROUTE, request, sizeof response), 0);
  EXPECT_EQ(response.node_guid, fake.route.node_guid);
  EXPECT_EQ(response.port_num, 1);
  EXPECT_EQ(response.ibdev_index, UINT32_MAX);
  EXPECT_EQ(response.num_paths, 0u);
  EXPECT_EQ(response.ib_route[0].sgid[15], 1);
  EXPECT_EQ(response.ib_route[0].dgid[15], 2);
  EXPECT_EQ(response.src_addr.sin6_port, htons(4660));
}

TEST_F(Query, RouteOfAnIdWithoutDeviceHasAddressesOnly) {
  fake.route.has_device = false;
  rdma_ucm_query_route_resp response = {};
  const rdma_ucm_query request = {.response = address_of(response), .id = create(), .option = 0};
  ASSERT_EQ(channel_.command(RDMA_USER_CM_CMD_QUERY_ROUTE, request, sizeof response), 0);
  EXPECT_EQ(response.node_guid, 0u);
  EXPECT_EQ(response.src_addr.sin6_family, AF_INET);
}

TEST_F(Query, AddressHasTheLengthOfItsFamily) {
  rdma_ucm_query_addr_resp response = {};
  ASSERT_EQ(ask(RDMA_USER_CM_QUERY_ADDR, &response), 0);
  EXPECT_EQ(response.src_size, sizeof(sockaddr_in));
  EXPECT_EQ(response.dst_size, 0);
  EXPECT_EQ(response.pkey, 0xffff);
  EXPECT_EQ(response.ibdev_index, UINT32_MAX);
}

TEST_F(Query, AddressWithoutRoomForTheIndexIsTheOldOne) {
  rdma_ucm_query_addr_resp response = {};
  response.ibdev_index = 99;
  const size_t room = offsetof(rdma_ucm_query_addr_resp, ibdev_index);
  ASSERT_EQ(ask(RDMA_USER_CM_QUERY_ADDR, &response, room), 0);
  EXPECT_EQ(response.ibdev_index, 99u);
  EXPECT_EQ(ask(RDMA_USER_CM_QUERY_ADDR, &response, room - 1), ENOSPC);
  EXPECT_EQ(ask(RDMA_USER_CM_QUERY_GID, &response, room - 1), ENOSPC);
}

TEST_F(Query, GidIsAnIbAddressWithTheServiceId) {
  rdma_ucm_query_addr_resp response = {};
  ASSERT_EQ(ask(RDMA_USER_CM_QUERY_GID, &response), 0);
  const auto& source = reinterpret_cast<const sockaddr_ib&>(response.src_addr);
  EXPECT_EQ(response.src_size, sizeof(sockaddr_ib));
  EXPECT_EQ(source.sib_family, AF_IB);
  EXPECT_EQ(source.sib_addr.sib_raw[15], 1);
  EXPECT_EQ(be64toh(source.sib_sid), uint64_t{RDMA_PS_TCP} << 16 | 4660);
}

TEST_F(Query, PathIsPackedAsItTravels) {
  fake.route.path_count = 1;
  ib_user_path_rec& path = fake.route.paths[0];
  path.dgid[15] = 2;
  path.flow_label = htonl(0x12345);
  path.hop_limit = 64;
  path.mtu_selector = 2;
  path.mtu = IBV_MTU_4096;
  path.rate_selector = 2;
  path.rate = IBV_RATE_200_GBPS;
  path.reversible = 1;
  path.numb_path = 1;
  path.pkey = 0xffff;
  struct {
    uint32_t num_paths, reserved;
    struct {
      uint32_t flags, reserved;
      ibv_path_record record;
    } paths[6];
  } response = {};
  ASSERT_EQ(ask(RDMA_USER_CM_QUERY_PATH, &response), 0);
  ASSERT_EQ(response.num_paths, 1u);
  const ibv_path_record& record = response.paths[0].record;
  EXPECT_EQ(record.dgid.raw[15], 2);
  EXPECT_EQ(ntohl(record.flowlabel_hoplimit), 0x1234540u);
  EXPECT_EQ(record.mtu, 2 << 6 | IBV_MTU_4096);
  EXPECT_EQ(record.rate, 2 << 6 | IBV_RATE_200_GBPS);
  EXPECT_EQ(record.reversible_numpath, 0x81);
}

TEST_F(Query, PathsThatFindNoRoomAreCountedOnly) {
  fake.route.path_count = 1;
  uint32_t response[2] = {};
  ASSERT_EQ(ask(RDMA_USER_CM_QUERY_PATH, &response), 0);
  EXPECT_EQ(response[0], 1u);
}

TEST_F(Query, UnknownOptionIsNotThere) {
  uint32_t response[2] = {};
  EXPECT_EQ(ask(3, &response), ENOSYS);
}

TEST_F(Query, BadResponsePointer) {
  for (const uint32_t option : {RDMA_USER_CM_QUERY_ADDR, RDMA_USER_CM_QUERY_PATH, RDMA_USER_CM_QUERY_GID}) {
    const rdma_ucm_query request = {.response = kNowhere, .id = create(), .option = option};
    EXPECT_EQ(channel_.command(RDMA_USER_CM_CMD_QUERY, request, 512), EFAULT);
  }
}

TEST_F(Query, QpAttributesComeWithTheirMask) {
  fake.attr.path_mtu = IBV_MTU_4096;
  fake.attr.dest_qp_num = 77;
  fake.attr.ah_attr.grh.dgid.raw[15] = 2;
  fake.attr.timeout = 14;
  fake.mask = IBV_QP_STATE | IBV_QP_DEST_QPN;
  ib_uverbs_qp_attr response = {};
  const rdma_ucm_init_qp_attr request = {
      .response = address_of(response), .id = create(), .qp_state = IBV_QPS_RTR};
  ASSERT_EQ(channel_.command(RDMA_USER_CM_CMD_INIT_QP_ATTR, request, sizeof response), 0);
  EXPECT_EQ(response.qp_attr_mask, static_cast<uint32_t>(fake.mask));
  EXPECT_EQ(response.qp_state, IBV_QPS_RTR);
  EXPECT_EQ(response.path_mtu, IBV_MTU_4096);
  EXPECT_EQ(response.dest_qp_num, 77u);
  EXPECT_EQ(response.ah_attr.grh.dgid[15], 2);
  EXPECT_EQ(response.timeout, 14);
}

TEST_F(Query, QpStateThatIsNoneIsRefused) {
  ib_uverbs_qp_attr response = {};
  const rdma_ucm_init_qp_attr request = {
      .response = address_of(response), .id = create(), .qp_state = IBV_QPS_ERR + 1};
  EXPECT_EQ(channel_.command(RDMA_USER_CM_CMD_INIT_QP_ATTR, request, sizeof response), EINVAL);
}

}  // namespace
}  // namespace verbena::test
