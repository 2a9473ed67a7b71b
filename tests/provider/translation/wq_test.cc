// SPDX-License-Identifier: BSD-2-Clause
#include "fixture.h"

namespace verbena::test {
namespace {

class WqTest : public ObjectTest {
 protected:
  void SetUp() override {
    ObjectTest::SetUp();
    ibv_wq_init_attr attr = {};
    attr.wq_type = IBV_WQT_RQ;
    attr.max_wr = 100;
    attr.max_sge = 1;
    attr.pd = pd_;
    attr.cq = cq_;
    wq_ = ibv_create_wq(context_, &attr);
    ASSERT_NE(wq_, nullptr);
    max_wr_ = attr.max_wr;
  }
  void TearDown() override {
    if (wq_ != nullptr) {
      EXPECT_EQ(ibv_destroy_wq(wq_), 0);
    }
    ObjectTest::TearDown();
  }
  ibv_wq* wq_ = nullptr;
  uint32_t max_wr_ = 0;
};

TEST_F(WqTest, HasWhatTheEmulatorSays) {
  EXPECT_EQ(wq_->context, context_);
  EXPECT_EQ(wq_->pd, pd_);
  EXPECT_EQ(wq_->cq, cq_);
  EXPECT_EQ(wq_->wq_num, 0x4712u);
  EXPECT_EQ(wq_->handle, 16u);
  EXPECT_EQ(wq_->state, IBV_WQS_RESET);
  EXPECT_EQ(max_wr_, 128u);
  EXPECT_EQ(fake.user_handle, reinterpret_cast<uintptr_t>(wq_));
}

TEST_F(WqTest, ModifyTellsTheStateInTheObject) {
  ibv_wq_attr attr = {};
  attr.attr_mask = IBV_WQ_ATTR_STATE;
  attr.wq_state = IBV_WQS_RDY;
  EXPECT_EQ(ibv_modify_wq(wq_, &attr), 0);
  EXPECT_EQ(wq_->state, IBV_WQS_RDY);
}

TEST_F(WqTest, PostingReachesTheEmulator) {
  ibv_recv_wr wr = {};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_wq_recv(wq_, &wr, &bad), 0);
  EXPECT_EQ(fake.received, &wr);
}

TEST_F(WqTest, ADamagedHandleIsRefused) {
  wq_->handle++;
  EXPECT_EQ(ibv_destroy_wq(wq_), ENOENT);
  wq_->handle--;
}

TEST_F(WqTest, ATableHasItsQueues) {
  ibv_wq* list[] = {wq_, wq_};
  ibv_rwq_ind_table_init_attr attr = {.log_ind_tbl_size = 1, .ind_tbl = list, .comp_mask = 0};
  ibv_rwq_ind_table* const table = ibv_create_rwq_ind_table(context_, &attr);
  ASSERT_NE(table, nullptr);
  EXPECT_TRUE(fake.table_is_whole);
  uint8_t key[40] = {};
  ibv_qp_init_attr_ex init = {};
  init.qp_type = IBV_QPT_RAW_PACKET;
  init.pd = pd_;
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
  init.rwq_ind_tbl = table;
  init.rx_hash_conf = {IBV_RX_HASH_FUNC_TOEPLITZ, sizeof key, key, 0};
  ibv_qp* const qp = ibv_create_qp_ex(context_, &init);
  ASSERT_NE(qp, nullptr);
  EXPECT_TRUE(fake.table_is_whole);
  EXPECT_EQ(qp->send_cq, nullptr);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  init.send_cq = cq_;
  EXPECT_EQ(ibv_create_qp_ex(context_, &init), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_destroy_rwq_ind_table(table), 0);
}

}  // namespace
}  // namespace verbena::test
