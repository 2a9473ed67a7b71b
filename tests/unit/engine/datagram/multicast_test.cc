// SPDX-License-Identifier: BSD-2-Clause
//
// Multicast: which QPs are attached, and what the members of a group receive.
#include <errno.h>
#include <gtest/gtest.h>

#include "adapter/traffic.h"
#include "engine/datagram/multicast.h"
#include "engine/objects/cq.h"
#include "engine/objects/qp.h"
#include "unit/engine/datagram_scene.h"

namespace verbena {
namespace {

constexpr uint32_t kGroupQpn = 0xffffff;

ibv_gid group(uint8_t number) {
  ibv_gid gid{};
  gid.raw[0] = 0xff;
  gid.raw[1] = 0x12;
  gid.raw[15] = number;
  return gid;
}

class MulticastVerbs : public ::testing::Test, protected DatagramScene {
 protected:
  MulticastVerbs() { out.fill(5); }
  // Attached as long as the object exists.
  struct Membership {
    Membership(Qp* qp, const ibv_gid& gid) : qp_(qp), gid_(gid) { EXPECT_EQ(attach_mcast(qp, &gid, 0), 0); }
    ~Membership() {
      if (qp_ != nullptr) end();
    }
    void end() {
      EXPECT_EQ(detach_mcast(qp_, &gid_, 0), 0);
      qp_ = nullptr;
    }
    Qp* qp_;
    ibv_gid gid_;
  };
  void send_to_group(const Side& from, const ibv_gid& to, uint32_t qpn = kGroupQpn, uint32_t qkey = kQkey) {
    ibv_ah_attr attr = address_of(gid());
    attr.grh.dgid = to;
    Address ah(pd.get(), attr);
    Sges sges{out.sge(0, 100)};
    ibv_send_wr wr = datagram(sges, qpn, 1, qkey);
    wr.wr.ud.ah = ah.ah();
    ASSERT_EQ(post(*from, wr), 0);
    EXPECT_EQ(from.sent().status, IBV_WC_SUCCESS);
  }
};

TEST_F(MulticastVerbs, EveryMemberReceives) {
  Side c = make(0xc);
  Membership of_b(*b, group(1)), of_c(*c, group(1));
  ASSERT_EQ(receive(*b, {in.sge(0, 200)}), 0);
  ASSERT_EQ(receive(*c, {in.sge(200, 200)}), 0);
  send_to_group(a, group(1));
  for (const Side* side : {&b, &c}) {
    const ibv_wc wc = side->received();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.src_qp, a.number());
    EXPECT_EQ(wc.byte_len, kGrh + 100);
  }
  EXPECT_EQ(std::memcmp(in.data() + kGrh, out.data(), 100), 0);
  EXPECT_EQ(std::memcmp(in.data() + 200 + kGrh, out.data(), 100), 0);
}

TEST_F(MulticastVerbs, IsCountedByThePort) {
  Membership of_b(*b, group(1));
  ASSERT_EQ(receive(*b, {in.sge(0, 200)}), 0);
  send_to_group(a, group(1));
  ASSERT_EQ(b.received().status, IBV_WC_SUCCESS);
  const PortCountValues sent = traffic_of(*(*a)->shared), received = traffic_of(*(*b)->shared);
  const auto of = [](const PortCountValues& values, PortCount count) {
    return values[static_cast<size_t>(count)];
  };
  EXPECT_EQ(of(sent, PortCount::kSentMulticast), 1u);
  EXPECT_EQ(of(sent, PortCount::kSentUnicast), 0u);
  EXPECT_EQ(of(sent, PortCount::kSentOctets), 100u);
  EXPECT_EQ(of(received, PortCount::kReceivedMulticast), 1u);
  EXPECT_EQ(of(received, PortCount::kReceivedUnicast), 0u);
  EXPECT_EQ(of(received, PortCount::kReceivedOctets), 100u);
  EXPECT_EQ(requests_of(*(*a)->shared).requests_out, 1u);
  EXPECT_EQ(requests_of(*(*b)->shared).requests_in, 1u);
}

TEST_F(MulticastVerbs, TheHeaderNamesTheGroup) {
  Membership of_b(*b, group(1));
  ASSERT_EQ(receive(*b, {in.sge(0, 200)}), 0);
  send_to_group(a, group(1));
  ASSERT_EQ(b.received().status, IBV_WC_SUCCESS);
  ibv_grh grh;
  std::memcpy(&grh, in.data(), sizeof grh);
  EXPECT_EQ(std::memcmp(grh.dgid.raw, group(1).raw, 16), 0);
}

TEST_F(MulticastVerbs, TheSenderReceivesWhenAttached) {
  Membership of_a(*a, group(1));
  ASSERT_EQ(receive(*a, {in.sge(0, 200)}), 0);
  send_to_group(a, group(1));
  EXPECT_EQ(a.received().src_qp, a.number());
}

TEST_F(MulticastVerbs, TheSenderReceivesNothingWhenItBlocksThat) {
  Membership of_a(*a, group(1)), of_b(*b, group(1));
  block_own_multicast(*a);
  ASSERT_EQ(receive(*a, {in.sge(0, 200)}), 0);
  ASSERT_EQ(receive(*b, {in.sge(200, 200)}), 0);
  send_to_group(a, group(1));
  EXPECT_EQ(b.received().src_qp, a.number());
  EXPECT_TRUE(nothing(a.recv_cq.get()));
}

TEST_F(MulticastVerbs, ASenderThatBlocksItsOwnReceivesTheOthers) {
  Membership of_a(*a, group(1));
  block_own_multicast(*a);
  ASSERT_EQ(receive(*a, {in.sge(0, 200)}), 0);
  send_to_group(b, group(1));
  EXPECT_EQ(a.received().src_qp, b.number());
}

TEST_F(MulticastVerbs, TheSenderNeedNotBeAttached) {
  Membership of_b(*b, group(1));
  ASSERT_EQ(receive(*a, {in.sge(0, 200)}), 0);
  send_to_group(a, group(1));
  EXPECT_TRUE(nothing(a.recv_cq.get()));
}

TEST_F(MulticastVerbs, AttachedTwiceReceivesOnce) {
  Membership of_b(*b, group(1));
  const ibv_gid one = group(1);
  ASSERT_EQ(attach_mcast(*b, &one, 0), 0);
  ASSERT_EQ(receive(*b, {in.sge(0, 200)}), 0);
  ASSERT_EQ(receive(*b, {in.sge(200, 200)}), 0);
  send_to_group(a, group(1));
  ASSERT_EQ(b.received().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(nothing(b.recv_cq.get()));
}

TEST_F(MulticastVerbs, DetachedReceivesNothing) {
  Membership of_b(*b, group(1));
  ASSERT_EQ(receive(*b, {in.sge(0, 200)}), 0);
  ASSERT_EQ(receive(*b, {in.sge(0, 200)}), 0);
  send_to_group(a, group(1));
  ASSERT_EQ(b.received().status, IBV_WC_SUCCESS);
  of_b.end();
  send_to_group(a, group(1));
  EXPECT_TRUE(nothing(b.recv_cq.get()));
}

TEST_F(MulticastVerbs, AttachedLaterReceivesToo) {
  Membership of_a(*a, group(1));
  send_to_group(a, group(1));
  Membership of_b(*b, group(1));
  ASSERT_EQ(receive(*b, {in.sge(0, 200)}), 0);
  send_to_group(a, group(1));
  EXPECT_EQ(b.received().status, IBV_WC_SUCCESS);
}

TEST_F(MulticastVerbs, AnotherGroupReceivesNothing) {
  Membership of_b(*b, group(1));
  ASSERT_EQ(receive(*b, {in.sge(0, 200)}), 0);
  send_to_group(a, group(2));
  EXPECT_TRUE(nothing(b.recv_cq.get()));
}

TEST_F(MulticastVerbs, AMemberWithAnotherQkeyReceivesNothing) {
  Membership of_b(*b, group(1));
  ASSERT_EQ(receive(*b, {in.sge(0, 200)}), 0);
  send_to_group(a, group(1), kGroupQpn, kQkey + 1);
  EXPECT_TRUE(nothing(b.recv_cq.get()));
  EXPECT_EQ((*b)->shared->qkey_violations.load(), 1u);
}

TEST_F(MulticastVerbs, ToAGroupWithAnotherNumberNobodyReceives) {
  Membership of_b(*b, group(1));
  ASSERT_EQ(receive(*b, {in.sge(0, 200)}), 0);
  send_to_group(a, group(1), b.number());
  EXPECT_TRUE(nothing(b.recv_cq.get()));
}

TEST_F(MulticastVerbs, AMemberWithoutAReceiveKeepsNobodyElse) {
  Side c = make(0xc);
  Membership of_b(*b, group(1)), of_c(*c, group(1));
  ASSERT_EQ(receive(*c, {in.sge(0, 200)}), 0);
  send_to_group(a, group(1));
  EXPECT_EQ(c.received().status, IBV_WC_SUCCESS);
  EXPECT_EQ((*b)->shared->dropped.load(), 1u);
}

TEST_F(MulticastVerbs, AMappedClassDAddressIsAGroup) {
  ibv_gid mapped{};
  mapped.raw[10] = mapped.raw[11] = 0xff;
  mapped.raw[12] = 224;
  mapped.raw[15] = 9;
  Membership of_b(*b, mapped);
  ASSERT_EQ(receive(*b, {in.sge(0, 200)}), 0);
  send_to_group(a, mapped);
  EXPECT_EQ(b.received().status, IBV_WC_SUCCESS);
}

TEST_F(MulticastVerbs, AUnicastGidIsNoGroup) {
  ibv_gid one = group(1);
  one.raw[0] = 0xfe;
  EXPECT_EQ(attach_mcast(*b, &one, 0), EINVAL);
}

TEST_F(MulticastVerbs, ConnectedQueuePairsCannotJoin) {
  Owned<Qp> rc = make_qp(pd.get(), b.send_cq.get(), b.recv_cq.get());
  const ibv_gid one = group(1);
  EXPECT_EQ(attach_mcast(rc.get(), &one, 0), EINVAL);
}

TEST_F(MulticastVerbs, DetachingWhatIsNotAttachedIsInvalid) {
  const ibv_gid one = group(1);
  EXPECT_EQ(detach_mcast(*b, &one, 0), EINVAL);
}

TEST_F(MulticastVerbs, AnAttachedQueuePairCannotBeDestroyed) {
  Membership of_b(*b, group(1));
  uint32_t events;
  EXPECT_EQ(destroy_qp(*b, &events), EBUSY);
}

TEST_F(MulticastVerbs, WhatTheDeviceClaimsIsTrue) {
  ibv_device_attr_ex attr{};
  ASSERT_EQ(query_device(context.get(), &attr), 0);
  EXPECT_EQ(attr.orig_attr.max_mcast_grp, 512);
  EXPECT_EQ(attr.orig_attr.max_mcast_qp_attach, 240);
  EXPECT_EQ(attr.orig_attr.max_total_mcast_qp_attach, 512);
}

TEST_F(MulticastVerbs, AsManyGroupsAsClaimed) {
  const auto number = [](uint32_t i) {
    ibv_gid one = group(static_cast<uint8_t>(i));
    one.raw[14] = static_cast<uint8_t>(i >> 8);
    return one;
  };
  std::vector<std::unique_ptr<Membership>> all;
  for (uint32_t i = 0; i < 512; ++i) all.push_back(std::make_unique<Membership>(*b, number(i)));
  const ibv_gid one_more = number(512);
  EXPECT_EQ(attach_mcast(*b, &one_more, 0), ENOMEM);
}

}  // namespace
}  // namespace verbena
