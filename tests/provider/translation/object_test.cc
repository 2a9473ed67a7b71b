// SPDX-License-Identifier: BSD-2-Clause
//
// Protection domains, memory, completion queues and queue pairs: which fields the program gets filled in,
// what reaches the emulator, and which errno comes back.
#include <sys/mman.h>

#include <chrono>
#include <future>

#include "fixture.h"

namespace verbena::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

alignas(4096) char page[4096];

TEST_F(ObjectTest, PdHasContextAndHandle) {
  EXPECT_EQ(pd_->context, context_);
  EXPECT_EQ(pd_->handle, 11u);
}

TEST_F(ObjectTest, ABusyPdStays) {
  fake.error = EBUSY;
  errno = 0;
  EXPECT_EQ(ibv_dealloc_pd(pd_), EBUSY);
  EXPECT_EQ(errno, EBUSY);
}

TEST_F(ObjectTest, MrHasItsKeysAndRange) {
  ibv_mr* mr = ibv_reg_mr(pd_, page, 100, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->lkey, 0x100u);
  EXPECT_EQ(mr->rkey, 0x200u);
  EXPECT_EQ(mr->handle, 12u);
  EXPECT_EQ(mr->addr, page);
  EXPECT_EQ(mr->length, 100u);
  EXPECT_EQ(mr->pd, pd_);
  EXPECT_EQ(mr->context, context_);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(ObjectTest, AnOrdinaryMrBeginsAtItsAddress) {
  ibv_mr* mr = ibv_reg_mr(pd_, page + 8, 8, 0);
  EXPECT_EQ(fake.iova, reinterpret_cast<uintptr_t>(page + 8));
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(ObjectTest, AZeroBasedMrBeginsAtZero) {
  ibv_mr* mr = ibv_reg_mr(pd_, page + 8, 8, IBV_ACCESS_ZERO_BASED);
  EXPECT_EQ(fake.iova, 0u);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(ObjectTest, AnMrWithIovaBeginsThere) {
  ibv_mr* mr = ibv_reg_mr_iova(pd_, page, 8, 0x7000, 0);
  EXPECT_EQ(fake.iova, 0x7000u);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(ObjectTest, AnIovaElsewhereInItsPageIsInvalid) {
  EXPECT_EQ(ibv_reg_mr_iova(pd_, page, 8, 0x7008, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(ObjectTest, OptionalAccessFlagsAreDropped) {
  ibv_mr* mr = ibv_reg_mr(pd_, page, 8, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
  EXPECT_EQ(fake.access, IBV_ACCESS_LOCAL_WRITE);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(ObjectTest, ARefusedMrSetsErrno) {
  fake.error = EFAULT;
  EXPECT_EQ(ibv_reg_mr(pd_, page, 8, 0), nullptr);
  EXPECT_EQ(errno, EFAULT);
}

TEST_F(ObjectTest, CqSaysItsRealSize) {
  EXPECT_EQ(cq_->cqe, 64);
  EXPECT_EQ(cq_->handle, 13u);
  EXPECT_EQ(fake.user_handle, reinterpret_cast<uintptr_t>(cq_));
  EXPECT_EQ(fake.cq_channel_fd, -1);
}

TEST_F(ObjectTest, ACqOfAnotherContextsChannelIsInvalid) {
  ibv_context stranger = {};
  ibv_comp_channel channel = {.context = &stranger, .fd = 0, .refcnt = 0};
  EXPECT_EQ(ibv_create_cq(context_, 1, nullptr, &channel, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(ObjectTest, AnErrorOfPollIsNegative) {
  ibv_wc wc;
  fake.error = EIO;
  EXPECT_EQ(ibv_poll_cq(cq_, 1, &wc), -EIO);
}

TEST_F(ObjectTest, ReqNotifyPassesSolicitedOnly) {
  EXPECT_EQ(ibv_req_notify_cq(cq_, 7), 0);
  EXPECT_TRUE(fake.solicited_only);
}

TEST_F(ObjectTest, DestroyCqWaitsForTheAcknowledgements) {
  fake.comp_events = 2;
  auto destroyed = std::async(std::launch::async, [this] { return ibv_destroy_cq(cq_); });
  ibv_ack_cq_events(cq_, 1);
  EXPECT_EQ(destroyed.wait_for(milliseconds(20)), std::future_status::timeout);
  ibv_ack_cq_events(cq_, 1);
  ASSERT_EQ(destroyed.wait_for(seconds(10)), std::future_status::ready);
  EXPECT_EQ(destroyed.get(), 0);
  cq_ = nullptr;
}

TEST_F(ObjectTest, DestroyCqDoesNotWaitForWhatWasNeverReported) {
  ibv_ack_cq_events(cq_, 3);
  EXPECT_EQ(ibv_destroy_cq(cq_), 0);
  cq_ = nullptr;
}

TEST_F(ObjectTest, DestroyQpWaitsForTheAcknowledgements) {
  make_qp();
  fake.async_events = 1;
  auto destroyed = std::async(std::launch::async, [this] { return ibv_destroy_qp(qp_); });
  EXPECT_EQ(destroyed.wait_for(milliseconds(20)), std::future_status::timeout);
  ibv_async_event event = {};
  event.element.qp = qp_;
  event.event_type = IBV_EVENT_COMM_EST;
  ibv_ack_async_event(&event);
  ASSERT_EQ(destroyed.wait_for(seconds(10)), std::future_status::ready);
  EXPECT_EQ(destroyed.get(), 0);
  qp_ = nullptr;
  fake.async_events = 0;
}

TEST_F(ObjectTest, QpHasEveryFieldFilledIn) {
  make_qp();
  EXPECT_EQ(qp_->context, context_);
  EXPECT_EQ(qp_->qp_context, &fake);
  EXPECT_EQ(qp_->pd, pd_);
  EXPECT_EQ(qp_->send_cq, cq_);
  EXPECT_EQ(qp_->recv_cq, cq_);
  EXPECT_EQ(qp_->srq, nullptr);
  EXPECT_EQ(qp_->handle, 14u);
  EXPECT_EQ(qp_->qp_num, 0x4711u);
  EXPECT_EQ(qp_->state, IBV_QPS_RESET);
  EXPECT_EQ(qp_->qp_type, IBV_QPT_RC);
}

TEST_F(ObjectTest, CreateQpTellsTheRealCapabilities) {
  ibv_qp_init_attr init = qp_init();
  qp_ = ibv_create_qp(pd_, &init);
  EXPECT_EQ(init.cap.max_send_wr, 128u);
}

TEST_F(ObjectTest, CreateQpOnAStrangersCqIsInvalid) {
  ibv_context stranger = {};
  ibv_cq other = {};
  other.context = &stranger;
  ibv_qp_init_attr init = qp_init();
  init.recv_cq = &other;
  EXPECT_EQ(ibv_create_qp(pd_, &init), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(ObjectTest, ModifyQpPassesEverythingOnAndRemembersTheState) {
  make_qp();
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  ASSERT_EQ(ibv_modify_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_PORT), 0);
  EXPECT_EQ(fake.modify_mask, IBV_QP_STATE | IBV_QP_PORT);
  EXPECT_EQ(fake.modify_attr.port_num, 1);
  EXPECT_EQ(qp_->state, IBV_QPS_INIT);
}

TEST_F(ObjectTest, ARefusedModifyLeavesTheState) {
  make_qp();
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_RTS;
  fake.error = EINVAL;
  EXPECT_EQ(ibv_modify_qp(qp_, &attr, IBV_QP_STATE), EINVAL);
  EXPECT_EQ(qp_->state, IBV_QPS_RESET);
}

TEST_F(ObjectTest, AQueryGivesBackNoRate) {
  make_qp();
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init;
  EXPECT_EQ(ibv_query_qp(qp_, &attr, IBV_QP_RATE_LIMIT, &init), EOPNOTSUPP);
}

TEST_F(ObjectTest, QueryQpAddsTheProgramsOwnPointers) {
  make_qp();
  fake.query_init.sq_sig_all = 1;
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  ASSERT_EQ(ibv_query_qp(qp_, &attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(qp_->state, IBV_QPS_RTS);
  EXPECT_EQ(init.qp_context, &fake);
  EXPECT_EQ(init.send_cq, cq_);
  EXPECT_EQ(init.recv_cq, cq_);
  EXPECT_EQ(init.qp_type, IBV_QPT_RC);
  EXPECT_EQ(init.sq_sig_all, 1);
}

TEST_F(ObjectTest, AttachingPassesTheGroup) {
  make_qp();
  const ibv_gid gid = {};
  ASSERT_EQ(ibv_attach_mcast(qp_, &gid, 0xc001), 0);
  EXPECT_EQ(fake.gid, &gid);
  EXPECT_EQ(fake.lid, 0xc001);
}

TEST_F(ObjectTest, ARefusedDetachingSaysWhy) {
  make_qp();
  const ibv_gid gid = {};
  fake.error = EINVAL;
  EXPECT_EQ(ibv_detach_mcast(qp_, &gid, 0xc001), EINVAL);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(ObjectTest, PostPassesTheListAndBadWr) {
  make_qp();
  ibv_send_wr send = {};
  ibv_send_wr* bad_send = nullptr;
  ibv_recv_wr receive = {};
  ibv_recv_wr* bad_receive = nullptr;
  EXPECT_EQ(ibv_post_send(qp_, &send, &bad_send), 0);
  EXPECT_EQ(ibv_post_recv(qp_, &receive, &bad_receive), 0);
  EXPECT_EQ(fake.sent, &send);
  EXPECT_EQ(fake.received, &receive);
  fake.error = ENOMEM;
  EXPECT_EQ(ibv_post_send(qp_, &send, &bad_send), ENOMEM);
  EXPECT_EQ(ibv_post_recv(qp_, &receive, &bad_receive), ENOMEM);
  EXPECT_EQ(bad_send, &send);
  EXPECT_EQ(bad_receive, &receive);
}

TEST_F(ObjectTest, CreateQpExPassesOnThatItsOwnMulticastIsNotWanted) {
  fake.blocks_own_multicast = false;
  ibv_qp_init_attr_ex init = {};
  init.send_cq = init.recv_cq = cq_;
  init.qp_type = IBV_QPT_UD;
  init.pd = pd_;
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
  init.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
  qp_ = ibv_create_qp_ex(context_, &init);
  ASSERT_NE(qp_, nullptr);
  EXPECT_TRUE(fake.blocks_own_multicast);
}

}  // namespace
}  // namespace verbena::test
