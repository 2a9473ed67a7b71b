// SPDX-License-Identifier: BSD-2-Clause
//
// ibv_create_qp(3), ibv_query_qp(3), ibv_destroy_qp(3).
#include <functional>
#include <string>

#include "fixture.h"

namespace verbena::test {
namespace {

TEST_F(QpTest, BeginsInReset) {
  Qp qp = make_qp();
  ASSERT_NE(qp, nullptr) << strerror(errno);
  EXPECT_EQ(qp->state, IBV_QPS_RESET);
  EXPECT_EQ(state_of(qp.get()), IBV_QPS_RESET);
}

TEST_F(QpTest, NumbersDifferAndAreNotSpecial) {
  Qp one = make_qp();
  Qp two = make_qp();
  EXPECT_NE(one->qp_num, two->qp_num);
  EXPECT_GT(one->qp_num, 1u);
  EXPECT_LT(one->qp_num, 1u << 24);
}

TEST_F(QpTest, ANumberIsNotGivenAgainAtOnce) {
  Qp qp = make_qp();
  const uint32_t number = qp->qp_num;
  qp.reset();
  qp = make_qp();
  EXPECT_NE(qp->qp_num, number);
}

TEST_F(QpTest, CapabilitiesAreAtLeastWhatWasAsked) {
  ibv_qp_init_attr init = qp_init(cq_.get(), cq_.get());
  Qp qp(ibv_create_qp(pd_.get(), &init));
  ASSERT_NE(qp, nullptr);
  EXPECT_GE(init.cap.max_send_wr, 16u);
  EXPECT_GE(init.cap.max_recv_wr, 16u);
  EXPECT_GE(init.cap.max_send_sge, 4u);
  EXPECT_GE(init.cap.max_recv_sge, 4u);
  EXPECT_GE(init.cap.max_inline_data, 64u);
}

TEST_F(QpTest, QueryGivesWhatCreateGave) {
  ibv_qp_init_attr init = qp_init(cq_.get(), cq_.get());
  init.sq_sig_all = 1;
  init.qp_context = this;
  Qp qp(ibv_create_qp(pd_.get(), &init));
  ASSERT_NE(qp, nullptr);
  ibv_qp_attr attr = {};
  ibv_qp_init_attr found = {};
  ASSERT_EQ(ibv_query_qp(qp.get(), &attr, IBV_QP_CAP, &found), 0);
  EXPECT_EQ(memcmp(&attr.cap, &init.cap, sizeof(init.cap)), 0);
  EXPECT_EQ(memcmp(&found.cap, &init.cap, sizeof(init.cap)), 0);
  EXPECT_EQ(found.sq_sig_all, 1);
  EXPECT_EQ(found.qp_context, this);
  EXPECT_EQ(found.send_cq, cq_.get());
  EXPECT_EQ(found.recv_cq, cq_.get());
  EXPECT_EQ(found.qp_type, IBV_QPT_RC);
}

TEST_F(QpTest, QueryGivesWhatModifySet) {
  Qp qp = make_qp();
  const Connection connection = {.timeout = 11, .retry_count = 5, .rnr_retry = 3, .min_rnr_timer = 20};
  connect(qp.get(), qp->qp_num, connection);
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  ASSERT_EQ(ibv_query_qp(qp.get(), &attr, kInitMask | kRtrMask | kRtsMask, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_RTS);
  EXPECT_EQ(attr.port_num, kPort);
  EXPECT_EQ(attr.qp_access_flags, static_cast<unsigned>(connection.access));
  EXPECT_EQ(attr.path_mtu, port_.active_mtu);
  EXPECT_EQ(attr.dest_qp_num, qp->qp_num);
  EXPECT_EQ(attr.rq_psn, 100u);
  EXPECT_EQ(attr.sq_psn, 100u);
  EXPECT_EQ(attr.timeout, 11);
  EXPECT_EQ(attr.retry_cnt, 5);
  EXPECT_EQ(attr.rnr_retry, 3);
  EXPECT_EQ(attr.min_rnr_timer, 20);
  EXPECT_EQ(attr.max_rd_atomic, 1);
  EXPECT_EQ(attr.max_dest_rd_atomic, 1);
  EXPECT_EQ(attr.ah_attr.is_global, 1);
  EXPECT_EQ(memcmp(&attr.ah_attr.grh.dgid, &gid_, sizeof(gid_)), 0);
}

// ---- what create refuses ----

struct Refusal {
  const char* name;
  int error;
  std::function<void(ibv_qp_init_attr*, const ibv_device_attr&)> change;
};
class RefusedQpTest : public QpTest, public testing::WithParamInterface<Refusal> {};

TEST_P(RefusedQpTest, IsNotCreated) {
  ibv_qp_init_attr init = qp_init(cq_.get(), cq_.get());
  GetParam().change(&init, device_);
  const ibv_qp_cap asked = init.cap;
  EXPECT_EQ(ibv_create_qp(pd_.get(), &init), nullptr);
  EXPECT_EQ(errno, GetParam().error);
  EXPECT_EQ(memcmp(&init.cap, &asked, sizeof(asked)), 0);
}

uint32_t above(int limit) { return static_cast<uint32_t>(limit) + 1; }

INSTANTIATE_TEST_SUITE_P(
    Table, RefusedQpTest,
    testing::Values(
        Refusal{"SendWr", EINVAL, [](auto* i, auto& d) { i->cap.max_send_wr = above(d.max_qp_wr); }},
        Refusal{"RecvWr", EINVAL, [](auto* i, auto& d) { i->cap.max_recv_wr = above(d.max_qp_wr); }},
        Refusal{"SendSge", EINVAL, [](auto* i, auto& d) { i->cap.max_send_sge = above(d.max_sge); }},
        Refusal{"RecvSge", EINVAL, [](auto* i, auto& d) { i->cap.max_recv_sge = above(d.max_sge); }},
        Refusal{"InlineData", EINVAL, [](auto* i, auto&) { i->cap.max_inline_data = 1u << 30; }},
        Refusal{"NoSendCq", EINVAL, [](auto* i, auto&) { i->send_cq = nullptr; }},
        Refusal{"NoRecvCq", EINVAL, [](auto* i, auto&) { i->recv_cq = nullptr; }},
        Refusal{"Driver", EOPNOTSUPP, [](auto* i, auto&) { i->qp_type = IBV_QPT_DRIVER; }},
        Refusal{"NoType", EINVAL, [](auto* i, auto&) { i->qp_type = static_cast<ibv_qp_type>(77); }}),
    [](const auto& refusal) { return std::string(refusal.param.name); });

TEST_F(QpTest, CreateExWithAPdAloneIsCreate) {
  ibv_qp_init_attr_ex init = {};
  init.send_cq = init.recv_cq = cq_.get();
  init.cap.max_send_wr = init.cap.max_recv_wr = init.cap.max_send_sge = init.cap.max_recv_sge = 1;
  init.qp_type = IBV_QPT_RC;
  init.comp_mask = IBV_QP_INIT_ATTR_PD;
  init.pd = pd_.get();
  Qp qp(ibv_create_qp_ex(context_.get(), &init));
  EXPECT_NE(qp, nullptr);
}

TEST_F(QpTest, ARawPacketQpHasNoFlags) {
  for (const uint32_t flags :
       {unsigned{IBV_QP_CREATE_BLOCK_SELF_MCAST_LB}, unsigned{IBV_QP_CREATE_CVLAN_STRIPPING}}) {
    ibv_qp_init_attr_ex init = {};
    init.send_cq = init.recv_cq = cq_.get();
    init.cap.max_send_wr = init.cap.max_recv_wr = init.cap.max_send_sge = init.cap.max_recv_sge = 1;
    init.qp_type = IBV_QPT_RAW_PACKET;
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
    init.pd = pd_.get();
    init.create_flags = flags;
    EXPECT_EQ(ibv_create_qp_ex(context_.get(), &init), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP) << "create_flags " << flags;
  }
}

TEST_F(QpTest, CqOfAnotherContextIsInvalid) {
  Context other = open_device();
  Cq stranger(ibv_create_cq(other.get(), 1, nullptr, nullptr, 0));
  ibv_qp_init_attr init = qp_init(cq_.get(), stranger.get());
  EXPECT_EQ(ibv_create_qp(pd_.get(), &init), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace
}  // namespace verbena::test
