// SPDX-License-Identifier: BSD-2-Clause
#include "cm/paths.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <infiniband/sa.h>

#include <cstring>

#include "unit/cm/addresses.h"

namespace verbena::cm {
namespace {

PathFacts facts(LinkLayer link_layer = LinkLayer::kEthernet) {
  PathFacts f{};
  f.link_layer = link_layer;
  f.sgid = gid("::ffff:192.0.2.1");
  f.dgid = gid("::ffff:192.0.2.2");
  f.slid = 1;
  f.dlid = 2;
  f.mtu = IBV_MTU_1024;
  return f;
}

TEST(CmPath, OfRoceSaysWhatLinuxSays) {
  const Path path = make_path(facts());
  EXPECT_EQ(path.sgid, gid("::ffff:192.0.2.1"));
  EXPECT_EQ(path.dgid, gid("::ffff:192.0.2.2"));
  EXPECT_EQ(path.slid, 0);
  EXPECT_EQ(path.dlid, 0);
  EXPECT_EQ(path.pkey, 0xffff);
  EXPECT_EQ(path.mtu, IBV_MTU_1024);
  EXPECT_EQ(path.hop_limit, 64);
  EXPECT_EQ(path.sl, 0);
  EXPECT_EQ(path.packet_life_time, 16);
  EXPECT_TRUE(path.reversible);
  EXPECT_EQ(path.mtu_selector, 2);
}

TEST(CmPath, TheServiceTypeIsTheTrafficClass) {
  PathFacts f = facts();
  f.service_type = 0x68;
  EXPECT_EQ(make_path(f).traffic_class, 0x68);
}

TEST(CmPath, AnAckTimeoutIsTwiceThePacketLifeTime) {
  PathFacts f = facts();
  f.ack_timeout = 14;
  EXPECT_EQ(make_path(f).packet_life_time, 13);
}

TEST(CmPath, OfInfinibandHasLidsAndNoHops) {
  const Path path = make_path(facts(LinkLayer::kInfiniband));
  EXPECT_EQ(path.slid, 1);
  EXPECT_EQ(path.dlid, 2);
  EXPECT_EQ(path.hop_limit, 0);
}

TEST(CmPath, TheMtuIsTheSmallerOne) {
  DeviceDescription small{}, large{};
  small.active_mtu = IBV_MTU_512;
  large.active_mtu = IBV_MTU_4096;
  EXPECT_EQ(path_facts(small, {}, large, {}).mtu, IBV_MTU_512);
  EXPECT_EQ(path_facts(large, {}, small, {}).mtu, IBV_MTU_512);
}

TEST(CmPath, GoesToTheKernelsFormatInNetworkByteOrder) {
  Path path = make_path(facts(LinkLayer::kInfiniband));
  path.flow_label = 0x12345;
  const ib_user_path_rec user = to_user(path);
  EXPECT_EQ(user.dlid, htons(2));
  EXPECT_EQ(user.flow_label, htonl(0x12345));
  EXPECT_EQ(user.pkey, htons(0xffff));
  EXPECT_EQ(user.mtu, static_cast<uint32_t>(IBV_MTU_1024));
}

TEST(CmPath, IsReadAsItWasWritten) {
  Path path = make_path(facts(LinkLayer::kInfiniband));
  path.flow_label = 0xfffff;
  path.hop_limit = 255;
  path.sl = 15;
  path.qos_class = 0xfff;
  path.rate = IBV_RATE_100_GBPS;
  path.preference = 3;
  path.service_id = 0x1060001;
  const ib_path_rec_data data = to_data(path);
  Path read;
  ASSERT_EQ(read_path(&data, 1, IBV_MTU_4096, &read), 0);
  EXPECT_EQ(read, path);
}

TEST(CmPath, ThePackedFormIsLibibverbs) {
  const Path path = make_path(facts(LinkLayer::kInfiniband));
  const ib_path_rec_data data = to_data(path);
  ibv_path_data theirs;
  std::memcpy(&theirs, &data, sizeof theirs);
  EXPECT_EQ(theirs.flags,
            static_cast<uint32_t>(IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL));
  EXPECT_EQ(theirs.path.mtu, 2 << 6 | IBV_MTU_1024);
  EXPECT_EQ(theirs.path.reversible_numpath, IBV_PATH_RECORD_REVERSIBLE | 1);
}

TEST(CmPath, OnlyThePrimaryPathBothWaysIsTaken) {
  ib_path_rec_data data[2] = {to_data(make_path(facts())), to_data(make_path(facts()))};
  data[0].flags = IB_PATH_OUTBOUND;
  Path wanted = make_path(facts());
  wanted.mtu = IBV_MTU_256;
  data[1] = to_data(wanted);
  Path read;
  ASSERT_EQ(read_path(data, 2, IBV_MTU_4096, &read), 0);
  EXPECT_EQ(read.mtu, IBV_MTU_256);
  EXPECT_EQ(read_path(data, 1, IBV_MTU_4096, &read), EINVAL);
  EXPECT_EQ(read_path(data, 0, IBV_MTU_4096, &read), EINVAL);
}

TEST(CmPath, AnMtuThatThePortHasNotIsRefused) {
  const ib_path_rec_data data = to_data(make_path(facts()));
  Path read;
  EXPECT_EQ(read_path(&data, 1, IBV_MTU_512, &read), EINVAL);
}

TEST(CmPath, AnUnknownMtuOrRateIsRefused) {
  Path path = make_path(facts());
  path.mtu = 6;
  ib_path_rec_data data = to_data(path);
  Path read;
  EXPECT_EQ(read_path(&data, 1, 63, &read), EINVAL);
  path = make_path(facts());
  path.rate = 1;
  data = to_data(path);
  EXPECT_EQ(read_path(&data, 1, IBV_MTU_4096, &read), EINVAL);
}

TEST(CmPath, TheVectorOfRoceHasAGrh) {
  PathFacts f = facts();
  f.service_type = 8;
  const ibv_ah_attr vector = address_vector(make_path(f), LinkLayer::kEthernet, 3, 1);
  EXPECT_EQ(vector.is_global, 1);
  EXPECT_EQ(vector.dlid, 0);
  EXPECT_EQ(vector.port_num, 1);
  EXPECT_EQ(vector.grh.sgid_index, 3);
  EXPECT_EQ(vector.grh.hop_limit, 64);
  EXPECT_EQ(vector.grh.traffic_class, 8);
  EXPECT_EQ(std::memcmp(vector.grh.dgid.raw, gid("::ffff:192.0.2.2").data(), 16), 0);
}

TEST(CmPath, TheVectorWithinASubnetHasALidAndNoGrh) {
  const ibv_ah_attr vector =
      address_vector(make_path(facts(LinkLayer::kInfiniband)), LinkLayer::kInfiniband, 0, 1);
  EXPECT_EQ(vector.is_global, 0);
  EXPECT_EQ(vector.dlid, 2);
}

TEST(CmPath, SeenFromTheOtherEndLeadsBack) {
  const Path path = make_path(facts(LinkLayer::kInfiniband));
  const Path back = reversed(path);
  EXPECT_EQ(back.dgid, path.sgid);
  EXPECT_EQ(back.dlid, path.slid);
  EXPECT_EQ(reversed(back), path);
}

TEST(CmPath, TheAckTimeoutCountsBothWaysAndTheDelay) {
  EXPECT_EQ(ack_timeout_of(16, 0), 17);
  EXPECT_EQ(ack_timeout_of(16, 15), 17);
  EXPECT_EQ(ack_timeout_of(16, 16), 18);
  EXPECT_EQ(ack_timeout_of(16, 20), 20);
  EXPECT_EQ(ack_timeout_of(18, 20), 21);
  EXPECT_EQ(ack_timeout_of(31, 31), 31);
}

}  // namespace
}  // namespace verbena::cm
