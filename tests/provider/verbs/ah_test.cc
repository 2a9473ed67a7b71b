// SPDX-License-Identifier: BSD-2-Clause
//
// ibv_create_ah(3), ibv_init_ah_from_wc(3), ibv_create_ah_from_wc(3).
#include <netinet/ip.h>

#include "datagrams.h"

namespace verbena::test {
namespace {

class AhTest : public PdTest {
 protected:
  ibv_ah_attr attr() const {
    ibv_ah_attr attr = {};
    attr.is_global = 1;
    attr.grh.dgid = gid_;
    attr.grh.hop_limit = 1;
    attr.port_num = kPort;
    return attr;
  }
};

TEST_F(AhTest, KnowsItsPd) {
  ibv_ah_attr attribute = attr();
  Ah ah(ibv_create_ah(pd_.get(), &attribute));
  ASSERT_NE(ah, nullptr);
  EXPECT_EQ(ah->pd, pd_.get());
  EXPECT_EQ(ah->context, context_.get());
  EXPECT_EQ(ibv_dealloc_pd(pd_.get()), EBUSY);
}

TEST_F(AhTest, APortThatIsNotThereIsInvalid) {
  ibv_ah_attr attribute = attr();
  attribute.port_num = 2;
  EXPECT_EQ(ibv_create_ah(pd_.get(), &attribute), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(AhTest, WithoutGrhIsForInfinibandOnly) {
  ibv_ah_attr attribute = attr();
  attribute.is_global = 0;
  attribute.dlid = port_.lid;
  const Ah made(ibv_create_ah(pd_.get(), &attribute));
  if (port_.link_layer == IBV_LINK_LAYER_ETHERNET)
    EXPECT_TRUE(made == nullptr && errno == EINVAL);
  else
    EXPECT_NE(made, nullptr);
}

class AhFromWcTest : public DatagramTest {
 protected:
  // The address that the receiver of a datagram from GID `index` to itself would reply to.
  ibv_ah_attr answer_to(int index) {
    ibv_gid gid;
    EXPECT_EQ(ibv_query_gid(context_.get(), kPort, index, &gid), 0);
    Ah ah = make_ah(attr_to(gid, static_cast<uint8_t>(index)));
    wc_ = exchange(ah.get(), receiver_->qp_num);
    ibv_ah_attr attr = {};
    EXPECT_EQ(ibv_init_ah_from_wc(context_.get(), kPort, &wc_, grh(), &attr), 0) << strerror(errno);
    EXPECT_EQ(memcmp(attr.grh.dgid.raw, gid.raw, sizeof(gid.raw)), 0);
    return attr;
  }
  ibv_wc wc_ = {};
};

TEST_F(AhFromWcTest, Ipv6LeadsBack) {
  const ibv_ah_attr attr = answer_to(0);
  EXPECT_EQ(attr.is_global, 1);
  EXPECT_EQ(attr.grh.sgid_index, 0);
  EXPECT_EQ(attr.grh.hop_limit, 17);
  EXPECT_EQ(attr.grh.traffic_class, 0x20);
  EXPECT_EQ(attr.port_num, kPort);
}

TEST_F(AhFromWcTest, Ipv4LeadsBack) {
  const int index = mapped_gid_index();
  if (index < 0) GTEST_SKIP() << "the machine has no IPv4 address";
  const ibv_ah_attr attr = answer_to(index);
  EXPECT_EQ(attr.is_global, 1);
  EXPECT_EQ(attr.grh.sgid_index, index);
  EXPECT_EQ(attr.grh.hop_limit, 17);
  EXPECT_EQ(attr.grh.traffic_class, 0x20);
}

TEST_F(AhFromWcTest, TheAnswerArrives) {
  answer_to(0);
  Ah back(ibv_create_ah_from_wc(pd_.get(), &wc_, grh(), kPort));
  ASSERT_NE(back, nullptr);
  ASSERT_EQ(receive(), 0);
  ASSERT_EQ(send(back.get(), receiver_->qp_num), 0);
  EXPECT_EQ(next_status(receiver_cq_.get()), IBV_WC_SUCCESS);
}

}  // namespace
}  // namespace verbena::test
