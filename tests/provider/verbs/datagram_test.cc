// SPDX-License-Identifier: BSD-2-Clause
//
// Datagrams as a program sees them: what arrives, what is dropped, Q_Keys, groups.
#include "datagrams.h"

#include <linux/capability.h>
#include <netinet/ip.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace verbena::test {
namespace {

TEST_F(DatagramTest, ArrivesBehindItsHeader) {
  const ibv_wc wc = exchange(ah_.get(), receiver_->qp_num, 1000);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.byte_len, kGrh + 1000);
  EXPECT_EQ(memcmp(in_.data() + kGrh, out_.data(), 1000), 0);
}

TEST_F(DatagramTest, TellsItsOrigin) {
  const ibv_wc wc = exchange(ah_.get(), receiver_->qp_num);
  EXPECT_EQ(wc.src_qp, sender_->qp_num);
  EXPECT_EQ(wc.wc_flags & IBV_WC_GRH, static_cast<unsigned>(IBV_WC_GRH));
  EXPECT_EQ(wc.pkey_index, 0);
}

TEST_F(DatagramTest, AnIpv4HeaderStandsInTheLastTwentyBytes) {
  const int index = mapped_gid_index();
  if (index < 0) GTEST_SKIP() << "the machine has no IPv4 address";
  ibv_gid gid;
  ASSERT_EQ(ibv_query_gid(context_.get(), kPort, index, &gid), 0);
  Ah ah = make_ah(attr_to(gid, static_cast<uint8_t>(index)));
  exchange(ah.get(), receiver_->qp_num);
  iphdr ip;
  memcpy(&ip, in_.data() + 20, sizeof(ip));
  EXPECT_EQ(ip.version, 4);
  EXPECT_EQ(ip.ttl, 17);
  EXPECT_EQ(memcmp(&ip.saddr, gid.raw + 12, 4), 0);
  EXPECT_EQ(memcmp(&ip.daddr, gid.raw + 12, 4), 0);
}

TEST_F(DatagramTest, LongerThanTheMtuIsALengthError) {
  ASSERT_EQ(send(ah_.get(), receiver_->qp_num, 4097), 0);
  EXPECT_EQ(next_status(cq_.get()), IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(state_of(sender_.get()), IBV_QPS_SQE);
}

TEST_F(DatagramTest, WithoutAReceiveIsDropped) {
  ASSERT_EQ(send(ah_.get(), receiver_->qp_num), 0);
  EXPECT_EQ(next_status(cq_.get()), IBV_WC_SUCCESS);
  EXPECT_TRUE(is_empty(receiver_cq_.get()));
}

TEST_F(DatagramTest, ThatDoesNotFitIsDropped) {
  ASSERT_EQ(receive(1, 64), 0);
  ASSERT_EQ(send(ah_.get(), receiver_->qp_num, 32), 0);
  EXPECT_EQ(next_status(cq_.get()), IBV_WC_SUCCESS);
  EXPECT_TRUE(is_empty(receiver_cq_.get()));
}

TEST_F(DatagramTest, MayGoToABufferThatEndsBeyondItsRegion) {
  ASSERT_EQ(receive(1, 8192 + 4096), 0);
  ASSERT_EQ(send(ah_.get(), receiver_->qp_num, 4096), 0);
  EXPECT_EQ(next_status(cq_.get()), IBV_WC_SUCCESS);
  EXPECT_EQ(next_status(receiver_cq_.get()), IBV_WC_SUCCESS);
  EXPECT_EQ(memcmp(in_.data() + kGrh, out_.data(), 4096), 0);
}

TEST_F(DatagramTest, WithAnotherQkeyIsDropped) {
  ibv_qp_attr attr = {};
  attr.qkey = kQkey + 1;
  ASSERT_EQ(ibv_modify_qp(receiver_.get(), &attr, IBV_QP_QKEY), 0);
  ASSERT_EQ(receive(), 0);
  ASSERT_EQ(send(ah_.get(), receiver_->qp_num), 0);
  EXPECT_EQ(next_status(cq_.get()), IBV_WC_SUCCESS);
  EXPECT_TRUE(is_empty(receiver_cq_.get()));
}

bool may_use_raw_sockets() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {};
  return syscall(SYS_capget, &header, sets) == 0 && (sets[0].effective & CAP_TO_MASK(CAP_NET_RAW)) != 0;
}

TEST_F(DatagramTest, AControlledQkeyNeedsThePrivilege) {
  ibv_qp_attr attr = {};
  attr.qkey = 0x80010000;
  EXPECT_EQ(ibv_modify_qp(receiver_.get(), &attr, IBV_QP_QKEY), may_use_raw_sockets() ? 0 : EPERM);
}

// ---- groups -------------------------------------------------------------------------------------------

class MulticastTest : public DatagramTest {
 protected:
  static constexpr uint32_t kGroupQpn = 0xffffff;
  static ibv_gid group() {
    ibv_gid gid = {};
    gid.raw[0] = 0xff;
    gid.raw[1] = 0x0e;
    gid.raw[15] = 77;
    return gid;
  }
  void SetUp() override {
    DatagramTest::SetUp();
    if (HasFatalFailure()) return;
    gid_of_group_ = group();
    to_group_ = make_ah(attr_to(gid_of_group_));
    ASSERT_NE(to_group_, nullptr);
  }
  void TearDown() override {
    for (ibv_qp* qp : attached_) EXPECT_EQ(ibv_detach_mcast(qp, &gid_of_group_, 0), 0);
  }
  void attach(ibv_qp* qp) {
    ASSERT_EQ(ibv_attach_mcast(qp, &gid_of_group_, 0), 0);
    attached_.push_back(qp);
  }
  ibv_gid gid_of_group_ = {};
  Ah to_group_;
  std::vector<ibv_qp*> attached_;
};

TEST_F(MulticastTest, AMemberReceives) {
  attach(receiver_.get());
  const ibv_wc wc = exchange(to_group_.get(), kGroupQpn);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.src_qp, sender_->qp_num);
  EXPECT_EQ(memcmp(grh()->dgid.raw, gid_of_group_.raw, sizeof(gid_of_group_.raw)), 0);
}

TEST_F(MulticastTest, AQueuePairThatIsNotAttachedReceivesNothing) {
  ASSERT_EQ(receive(), 0);
  ASSERT_EQ(send(to_group_.get(), kGroupQpn), 0);
  EXPECT_EQ(next_status(cq_.get()), IBV_WC_SUCCESS);
  EXPECT_TRUE(is_empty(receiver_cq_.get()));
}

TEST_F(MulticastTest, AnAttachedQueuePairCannotBeDestroyed) {
  attach(receiver_.get());
  EXPECT_EQ(ibv_destroy_qp(receiver_.get()), EBUSY);
}

TEST_F(MulticastTest, ItsHeaderMakesNoAddressHandle) {
  attach(receiver_.get());
  ibv_wc wc = exchange(to_group_.get(), kGroupQpn);
  ibv_ah_attr attr = {};
  EXPECT_NE(ibv_init_ah_from_wc(context_.get(), kPort, &wc, grh(), &attr), 0);
}

TEST_F(MulticastTest, AQueuePairMayRefuseItsOwn) {
  ibv_qp_init_attr_ex attr = {};
  attr.qp_type = IBV_QPT_UD;
  attr.send_cq = attr.recv_cq = cq_.get();
  attr.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
  attr.pd = pd_.get();
  attr.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
  EXPECT_NE(Qp(ibv_create_qp_ex(context_.get(), &attr)), nullptr) << strerror(errno);
  attr.qp_type = IBV_QPT_RC;
  EXPECT_EQ(ibv_create_qp_ex(context_.get(), &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(MulticastTest, TheDeviceClaimsGroups) {
  EXPECT_GT(device_.max_mcast_grp, 0);
  EXPECT_GT(device_.max_mcast_qp_attach, 0);
  EXPECT_GE(device_.max_total_mcast_qp_attach, device_.max_mcast_qp_attach);
}

}  // namespace
}  // namespace verbena::test
