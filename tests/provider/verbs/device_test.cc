// SPDX-License-Identifier: BSD-2-Clause
//
// ibv_get_device_list(3), ibv_open_device(3), ibv_query_device(3), ibv_query_device_ex(3), ibv_query_port(3),
// ibv_query_gid(3), ibv_query_gid_ex(3), ibv_query_gid_table(3), ibv_query_pkey(3), ibv_get_pkey_index(3).
#include <arpa/inet.h>

#include <vector>

#include "fixture.h"

namespace verbena::test {
namespace {

TEST_F(DeviceTest, ListCountsItsEntries) {
  int count = -1;
  ibv_device** list = ibv_get_device_list(&count);
  ASSERT_NE(list, nullptr);
  EXPECT_GE(count, 1);
  EXPECT_EQ(list[count], nullptr);
  ibv_free_device_list(list);
}

TEST_F(DeviceTest, OpensAgainWhileOpen) {
  Context again = open_device();
  ASSERT_NE(again, nullptr);
  EXPECT_NE(again->async_fd, context_->async_fd);
}

TEST_F(DeviceTest, OpensAgainAfterClose) {
  context_.reset();
  context_ = open_device();
  EXPECT_NE(context_, nullptr);
}

TEST_F(DeviceTest, GuidIsTheOneOfTheList) {
  EXPECT_EQ(ibv_get_device_guid(context_->device), device_.node_guid);
}

TEST_F(DeviceTest, IsAChannelAdapter) {
  EXPECT_EQ(context_->device->node_type, IBV_NODE_CA);
  EXPECT_EQ(context_->device->transport_type, IBV_TRANSPORT_IB);
}

TEST_F(DeviceTest, QueryDeviceHasUsableLimits) {
  EXPECT_EQ(device_.phys_port_cnt, 1);
  EXPECT_GE(device_.max_qp, 16384);
  EXPECT_GE(device_.max_qp_wr, 1024);
  EXPECT_GE(device_.max_sge, 1);
  EXPECT_GE(device_.max_cqe, 1024);
  EXPECT_GE(device_.max_qp_rd_atom, 1);
  EXPECT_EQ(device_.atomic_cap, IBV_ATOMIC_HCA);
}

// As mlx5 claims it (hw/mlx5/main.c, mlx5_ib_query_device()).
TEST_F(DeviceTest, ClaimsTagMatching) {
  ibv_device_attr_ex seen = {};
  ASSERT_EQ(ibv_query_device_ex(context_.get(), nullptr, &seen), 0);
  EXPECT_EQ(seen.tm_caps.max_rndv_hdr_size, 64u);
  EXPECT_EQ(seen.tm_caps.max_num_tags, 127u);
  EXPECT_EQ(seen.tm_caps.flags, unsigned{IBV_TM_CAP_RC});
  EXPECT_EQ(seen.tm_caps.max_ops, 8192u);
  EXPECT_EQ(seen.tm_caps.max_sge, 1u);
}

// What is not offered is not claimed: TSO, the types of queue pairs of old (docs/FEATURES.md).
TEST_F(DeviceTest, ClaimsNothingOfWhatItRefuses) {
  ibv_device_attr_ex seen;
  memset(&seen, 0xff, sizeof seen);
  ASSERT_EQ(ibv_query_device_ex(context_.get(), nullptr, &seen), 0);
  EXPECT_EQ(seen.tso_caps.max_tso, 0u);
  EXPECT_EQ(seen.tso_caps.supported_qpts, 0u);
  EXPECT_EQ(seen.orig_attr.max_raw_ipv6_qp, 0);
  EXPECT_EQ(seen.orig_attr.max_raw_ethy_qp, 0);
  EXPECT_EQ(seen.orig_attr.max_fmr, 0);
  EXPECT_EQ(seen.orig_attr.max_ee, 0);
  EXPECT_EQ(seen.orig_attr.max_rdd, 0);
}

TEST_F(DeviceTest, QueryDeviceExBeginsWithTheOldStructure) {
  ibv_device_attr_ex extended = {};
  ASSERT_EQ(ibv_query_device_ex(context_.get(), nullptr, &extended), 0);
  EXPECT_EQ(memcmp(&extended.orig_attr, &device_, sizeof(device_)), 0);
  EXPECT_EQ(extended.phys_port_cnt_ex, device_.phys_port_cnt);
}

TEST_F(DeviceTest, QueryDeviceExRefusesUnknownInput) {
  const ibv_query_device_ex_input input = {.comp_mask = 1};
  ibv_device_attr_ex extended = {};
  EXPECT_EQ(ibv_query_device_ex(context_.get(), &input, &extended), EINVAL);
}

TEST_F(DeviceTest, PortIsActive) {
  EXPECT_EQ(port_.state, IBV_PORT_ACTIVE);
  EXPECT_GE(port_.gid_tbl_len, 1);
  EXPECT_GE(port_.pkey_tbl_len, 1);
  EXPECT_GE(port_.max_msg_sz, 1u << 20);
  EXPECT_LE(port_.active_mtu, port_.max_mtu);
}

TEST_F(DeviceTest, QueryPortOfAPortThatIsNotThere) {
  ibv_port_attr attr;
  EXPECT_EQ(ibv_query_port(context_.get(), 0, &attr), EINVAL);
  EXPECT_EQ(ibv_query_port(context_.get(), 2, &attr), EINVAL);
}

TEST_F(DeviceTest, FirstGidIsLinkLocal) {
  EXPECT_EQ(gid_.raw[0], 0xfe);
  EXPECT_EQ(gid_.raw[1], 0x80);
}

TEST_F(DeviceTest, QueryGidBeyondTheTable) {
  ibv_gid gid;
  EXPECT_NE(ibv_query_gid(context_.get(), kPort, port_.gid_tbl_len, &gid), 0);
}

TEST_F(DeviceTest, QueryGidExSaysTheSameAsQueryGid) {
  ibv_gid_entry entry = {};
  ASSERT_EQ(ibv_query_gid_ex(context_.get(), kPort, 0, &entry, 0), 0);
  EXPECT_EQ(memcmp(&entry.gid, &gid_, sizeof(gid_)), 0);
  EXPECT_EQ(entry.port_num, kPort);
  if (port_.link_layer == IBV_LINK_LAYER_ETHERNET) {
    EXPECT_EQ(entry.gid_type, static_cast<uint32_t>(IBV_GID_TYPE_ROCE_V2));
  }
}

TEST_F(DeviceTest, QueryGidTableListsEveryEntry) {
  std::vector<ibv_gid_entry> entries(static_cast<size_t>(port_.gid_tbl_len));
  const ssize_t count = ibv_query_gid_table(context_.get(), entries.data(), entries.size(), 0);
  ASSERT_GE(count, 1);
  for (ssize_t i = 0; i < count; i++) {
    ibv_gid gid = {};
    ASSERT_EQ(ibv_query_gid(context_.get(), kPort, static_cast<int>(entries[i].gid_index), &gid), 0);
    EXPECT_EQ(memcmp(&entries[i].gid, &gid, sizeof(gid)), 0) << "entry " << i;
  }
}

TEST_F(DeviceTest, DefaultPkeyIsFullMembership) {
  __be16 pkey = 0;
  ASSERT_EQ(ibv_query_pkey(context_.get(), kPort, 0, &pkey), 0);
  EXPECT_EQ(ntohs(pkey), 0xffff);
  EXPECT_EQ(ibv_get_pkey_index(context_.get(), kPort, pkey), 0);
}

TEST_F(DeviceTest, QueryPkeyBeyondTheTable) {
  __be16 pkey = 0;
  EXPECT_NE(ibv_query_pkey(context_.get(), kPort, port_.pkey_tbl_len, &pkey), 0);
}

TEST_F(DeviceTest, NoAsynchronousEventWithoutCause) { EXPECT_FALSE(is_readable(context_->async_fd)); }

}  // namespace
}  // namespace verbena::test
