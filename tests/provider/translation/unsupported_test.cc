// SPDX-License-Identifier: BSD-2-Clause
#include "../unsupported_verbs.h"

#include <cctype>
#include <string>

#include "fixture.h"

namespace verbena::test {
namespace {

class UnsupportedVerbTest : public ObjectTest, public testing::WithParamInterface<UnsupportedVerb> {
 protected:
  void SetUp() override {
    ObjectTest::SetUp();
    make_qp();
  }
};

TEST_P(UnsupportedVerbTest, AnswersEopnotsupp) {
  static char buffer[8];
  ibv_mr* mr = ibv_reg_mr(pd_, buffer, sizeof(buffer), 0);
  errno = 0;
  EXPECT_EQ(GetParam().call({.context = context_, .pd = pd_, .cq = cq_, .qp = qp_, .mr = mr}), EOPNOTSUPP);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

INSTANTIATE_TEST_SUITE_P(All, UnsupportedVerbTest, testing::ValuesIn(kUnsupportedVerbs),
                         [](const auto& verb) {
                           std::string name = verb.param.name;
                           for (char& c : name) c = isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

// This call cannot fail: 0 promises nothing about the order of bytes (ibv_query_qp_data_in_order(3)).
TEST_F(ObjectTest, DataInOrderIsNotPromised) {
  make_qp();
  EXPECT_EQ(ibv_query_qp_data_in_order(qp_, IBV_WR_RDMA_WRITE, 0), 0);
}

// A QP without IBV_QP_INIT_ATTR_SEND_OPS_FLAGS has no ibv_wr_*(3).
TEST_F(ObjectTest, APlainQpIsNoExtendedOne) {
  make_qp();
  EXPECT_EQ(ibv_qp_to_qp_ex(qp_), nullptr);
}

TEST_F(ObjectTest, CreateQpExThatSaysNothingNewMakesAQp) {
  ibv_qp_init_attr_ex init = {};
  init.send_cq = init.recv_cq = cq_;
  init.qp_type = IBV_QPT_RC;
  init.pd = pd_;
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
  qp_ = ibv_create_qp_ex(context_, &init);
  ASSERT_NE(qp_, nullptr);
  EXPECT_EQ(init.cap.max_send_wr, 128u);
}

}  // namespace
}  // namespace verbena::test
