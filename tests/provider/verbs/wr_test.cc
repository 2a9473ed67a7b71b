// SPDX-License-Identifier: BSD-2-Clause
//
// ibv_wr_*(3): work requests built between ibv_wr_start and ibv_wr_complete.
#include <thread>

#include "pair.h"

namespace verbena::test {
namespace {

constexpr uint64_t kAllOps = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                             IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
                             IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
                             IBV_QP_EX_WITH_ATOMIC_WRITE;

class WrTest : public PairTest {
 protected:
  ibv_qp_init_attr_ex init_ex(uint64_t ops) const {
    ibv_qp_init_attr_ex init = {};
    init.send_cq = init.recv_cq = cq_.get();
    init.cap = {
        .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 4, .max_recv_sge = 4, .max_inline_data = 64};
    init.qp_type = IBV_QPT_RC;
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.pd = pd_.get();
    init.send_ops_flags = ops;
    return init;
  }
  void SetUp() override {
    PairTest::SetUp();
    if (HasFatalFailure()) return;
    requester_.reset();
    ibv_qp_init_attr_ex init = init_ex(kAllOps);
    requester_.reset(ibv_create_qp_ex(context_.get(), &init));
    ASSERT_NE(requester_, nullptr) << strerror(errno);
    qp_ = ibv_qp_to_qp_ex(requester_.get());
    ASSERT_NE(qp_, nullptr);
    ASSERT_EQ(to_state(responder_.get(), IBV_QPS_RESET), 0);
    connect(requester_.get(), responder_->qp_num);
    connect(responder_.get(), requester_->qp_num);
  }

  void start(uint64_t id = 1, unsigned flags = IBV_SEND_SIGNALED) {
    ibv_wr_start(qp_);
    next(id, flags);
  }
  void next(uint64_t id, unsigned flags = IBV_SEND_SIGNALED) {
    qp_->wr_id = id;
    qp_->wr_flags = flags;
  }
  void set_local(size_t offset, uint32_t length) {
    ibv_wr_set_sge(qp_, local_.lkey(), local_.address(offset), length);
  }
  ibv_wc completed(ibv_wc_opcode opcode, uint64_t id = 1) {
    const ibv_wc wc = next_completion(cq_.get());
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.opcode, opcode);
    EXPECT_EQ(wc.wr_id, id);
    return wc;
  }

  ibv_qp_ex* qp_ = nullptr;
};

TEST_F(WrTest, AnOrdinaryQpIsNotExtended) { EXPECT_EQ(ibv_qp_to_qp_ex(responder_.get()), nullptr); }

TEST_F(WrTest, SendArrives) {
  local_.fill(3);
  ASSERT_EQ(receive(remote_.sge(0, 100)), 0);
  start();
  ibv_wr_send(qp_);
  set_local(0, 100);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  completed(IBV_WC_SEND);
  EXPECT_EQ(next_completion(responder_cq_.get()).byte_len, 100u);
  EXPECT_TRUE(same_bytes(100));
}

TEST_F(WrTest, SendWithImmediateCarriesIt) {
  ASSERT_EQ(receive(remote_.sge(0, 100)), 0);
  start();
  ibv_wr_send_imm(qp_, htobe32(0x1234));
  set_local(0, 8);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  completed(IBV_WC_SEND);
  const ibv_wc wc = next_completion(responder_cq_.get());
  EXPECT_EQ(wc.imm_data, htobe32(0x1234));
  EXPECT_TRUE(wc.wc_flags & IBV_WC_WITH_IMM);
}

TEST_F(WrTest, WriteGoesToTheRemoteAddress) {
  local_.fill(7);
  start();
  ibv_wr_rdma_write(qp_, remote_.rkey(), remote_.address(64));
  set_local(0, 32);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  completed(IBV_WC_RDMA_WRITE);
  EXPECT_TRUE(same_bytes(32, 0, 64));
}

TEST_F(WrTest, WriteWithImmediateIsTold) {
  ASSERT_EQ(receive(remote_.sge(0, 0)), 0);
  start();
  ibv_wr_rdma_write_imm(qp_, remote_.rkey(), remote_.address(), htobe32(9));
  set_local(0, 32);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  completed(IBV_WC_RDMA_WRITE);
  const ibv_wc wc = next_completion(responder_cq_.get());
  EXPECT_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(wc.imm_data, htobe32(9));
}

TEST_F(WrTest, ReadFetches) {
  remote_.fill(11);
  start();
  ibv_wr_rdma_read(qp_, remote_.rkey(), remote_.address());
  set_local(0, 64);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  completed(IBV_WC_RDMA_READ);
  EXPECT_TRUE(same_bytes(64));
}

TEST_F(WrTest, CompareAndSwapSwaps) {
  const uint64_t before = 5;
  memcpy(remote_.data(), &before, sizeof before);
  start();
  ibv_wr_atomic_cmp_swp(qp_, remote_.rkey(), remote_.address(), 5, 77);
  set_local(0, 8);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  completed(IBV_WC_COMP_SWAP);
  uint64_t now = 0;
  memcpy(&now, remote_.data(), sizeof now);
  EXPECT_EQ(now, 77u);
}

TEST_F(WrTest, FetchAndAddAdds) {
  const uint64_t before = 5;
  memcpy(remote_.data(), &before, sizeof before);
  start();
  ibv_wr_atomic_fetch_add(qp_, remote_.rkey(), remote_.address(), 10);
  set_local(0, 8);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  completed(IBV_WC_FETCH_ADD);
  uint64_t now = 0;
  memcpy(&now, remote_.data(), sizeof now);
  EXPECT_EQ(now, 15u);
}

TEST_F(WrTest, AtomicWriteWritesEightBytes) {
  const uint64_t value = 0x0123456789abcdef;
  start();
  ibv_wr_atomic_write(qp_, remote_.rkey(), remote_.address(8), &value);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  completed(IBV_WC_ATOMIC_WRITE);
  EXPECT_EQ(memcmp(remote_.data() + 8, &value, sizeof value), 0);
}

TEST_F(WrTest, AtomicWriteTakesItsBytesWhenItIsBuilt) {
  uint64_t value = 7;
  start();
  ibv_wr_atomic_write(qp_, remote_.rkey(), remote_.address(), &value);
  value = 8;
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  completed(IBV_WC_ATOMIC_WRITE);
  memcpy(&value, remote_.data(), sizeof value);
  EXPECT_EQ(value, 7u);
}

TEST_F(WrTest, AtomicWriteToAMisalignedAddressFails) {
  const uint64_t value = 7;
  start();
  ibv_wr_atomic_write(qp_, remote_.rkey(), remote_.address(4), &value);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  EXPECT_EQ(next_status(cq_.get()), IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(WrTest, AnOrdinaryRequestMayBeAnAtomicWrite) {
  local_.fill(5);
  EXPECT_EQ(carry_out(IBV_WR_ATOMIC_WRITE, local_.sge(0, 8)).opcode, IBV_WC_ATOMIC_WRITE);
  EXPECT_TRUE(same_bytes(8));
}

TEST_F(WrTest, AnAtomicWriteOfOtherThanEightBytesFails) {
  EXPECT_EQ(carry_out(IBV_WR_ATOMIC_WRITE, local_.sge(0, 16)).status, IBV_WC_LOC_LEN_ERR);
}

TEST_F(WrTest, AListIsGatheredInOrder) {
  local_.fill(1);
  start();
  ibv_wr_rdma_write(qp_, remote_.rkey(), remote_.address());
  const ibv_sge list[] = {local_.sge(0, 10), local_.sge(10, 20), local_.sge(30, 2)};
  ibv_wr_set_sge_list(qp_, 3, list);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  completed(IBV_WC_RDMA_WRITE);
  EXPECT_TRUE(same_bytes(32));
}

TEST_F(WrTest, InlineDataIsTakenByTheSetter) {
  char text[] = "as it was";
  start();
  ibv_wr_rdma_write(qp_, remote_.rkey(), remote_.address());
  ibv_wr_set_inline_data(qp_, text, sizeof text);
  memset(text, 'x', sizeof text);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  completed(IBV_WC_RDMA_WRITE);
  EXPECT_STREQ(reinterpret_cast<char*>(remote_.data()), "as it was");
}

TEST_F(WrTest, InlineDataMayHaveMoreBuffersThanTheQpHasSges) {
  char letters[] = "abcdef";
  ibv_data_buf buffers[6];
  for (int i = 0; i < 6; i++) buffers[i] = {.addr = letters + i, .length = 1};
  start();
  ibv_wr_rdma_write(qp_, remote_.rkey(), remote_.address());
  ibv_wr_set_inline_data_list(qp_, 6, buffers);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  completed(IBV_WC_RDMA_WRITE);
  EXPECT_EQ(memcmp(remote_.data(), letters, 6), 0);
}

TEST_F(WrTest, ABatchIsCarriedOutInOrder) {
  local_.fill(1);
  start(1, 0);
  ibv_wr_rdma_write(qp_, remote_.rkey(), remote_.address());
  set_local(0, 8);
  next(2);
  ibv_wr_rdma_write(qp_, remote_.rkey(), remote_.address());
  set_local(8, 8);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  completed(IBV_WC_RDMA_WRITE, 2);
  EXPECT_TRUE(is_empty(cq_.get()));
  EXPECT_TRUE(same_bytes(8, 8, 0));
}

TEST_F(WrTest, AMessageWithoutASetterIsEmpty) {
  ASSERT_EQ(receive(remote_.sge(0, 100)), 0);
  start();
  ibv_wr_send(qp_);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  completed(IBV_WC_SEND);
  EXPECT_EQ(next_completion(responder_cq_.get()).byte_len, 0u);
}

TEST_F(WrTest, AnEmptyBatchSucceeds) {
  ibv_wr_start(qp_);
  EXPECT_EQ(ibv_wr_complete(qp_), 0);
  EXPECT_TRUE(is_empty(cq_.get()));
}

TEST_F(WrTest, AbortForgetsTheBatch) {
  local_.fill(1);
  start();
  ibv_wr_rdma_write(qp_, remote_.rkey(), remote_.address());
  set_local(0, 8);
  ibv_wr_abort(qp_);
  ibv_wr_start(qp_);
  EXPECT_EQ(ibv_wr_complete(qp_), 0);
  EXPECT_TRUE(is_empty(cq_.get()));
  EXPECT_FALSE(same_bytes(8));
}

// ibv_wr_post(3): "the entire posting will be aborted".
TEST_F(WrTest, OneBadRequestAbortsTheBatch) {
  local_.fill(1);
  start();
  ibv_wr_rdma_write(qp_, remote_.rkey(), remote_.address());
  set_local(0, 8);
  next(2);
  ibv_wr_rdma_write(qp_, remote_.rkey(), remote_.address());
  ibv_sge many[5] = {};
  ibv_wr_set_sge_list(qp_, 5, many);
  EXPECT_NE(ibv_wr_complete(qp_), 0);
  EXPECT_TRUE(is_empty(cq_.get()));
  EXPECT_FALSE(same_bytes(8));
}

TEST_F(WrTest, ABatchThatTheQueueHasNoRoomForIsNotPosted) {
  ibv_wr_start(qp_);
  for (uint64_t id = 0; id < 17; id++) {
    next(id);
    ibv_wr_rdma_write(qp_, remote_.rkey(), remote_.address());
    set_local(0, 8);
  }
  EXPECT_EQ(ibv_wr_complete(qp_), ENOMEM);
  EXPECT_TRUE(is_empty(cq_.get()));
}

TEST_F(WrTest, ABatchBesideRequestsNotPolledYetIsNotPosted) {
  for (int batch = 0; batch < 2; batch++) {
    ibv_wr_start(qp_);
    for (uint64_t id = 0; id < 9; id++) {
      next(id);
      ibv_wr_rdma_write(qp_, remote_.rkey(), remote_.address());
      set_local(0, 8);
    }
    EXPECT_EQ(ibv_wr_complete(qp_), batch == 0 ? 0 : ENOMEM);
  }
  for (uint64_t id = 0; id < 9; id++) completed(IBV_WC_RDMA_WRITE, id);
  EXPECT_TRUE(is_empty(cq_.get()));
}

TEST_F(WrTest, TooMuchInlineDataIsRefused) {
  char bytes[65] = {};
  start();
  ibv_wr_rdma_write(qp_, remote_.rkey(), remote_.address());
  ibv_wr_set_inline_data(qp_, bytes, sizeof bytes);
  EXPECT_EQ(ibv_wr_complete(qp_), ENOMEM);
}

TEST_F(WrTest, AReadDoesNotTakeInlineData) {
  char bytes[8] = {};
  start();
  ibv_wr_rdma_read(qp_, remote_.rkey(), remote_.address());
  ibv_wr_set_inline_data(qp_, bytes, sizeof bytes);
  EXPECT_EQ(ibv_wr_complete(qp_), EINVAL);
}

TEST_F(WrTest, ASetterWithoutAnOperationIsRefused) {
  ibv_wr_start(qp_);
  set_local(0, 8);
  EXPECT_EQ(ibv_wr_complete(qp_), EINVAL);
}

TEST_F(WrTest, NothingIsPostedBelowRts) {
  ASSERT_EQ(to_state(requester_.get(), IBV_QPS_RESET), 0);
  start();
  ibv_wr_send(qp_);
  EXPECT_EQ(ibv_wr_complete(qp_), EINVAL);
}

TEST_F(WrTest, AFailureDoesNotOutliveItsBatch) {
  ibv_wr_start(qp_);
  set_local(0, 8);
  EXPECT_NE(ibv_wr_complete(qp_), 0);
  start();
  ibv_wr_rdma_write(qp_, remote_.rkey(), remote_.address());
  set_local(0, 8);
  EXPECT_EQ(ibv_wr_complete(qp_), 0);
  completed(IBV_WC_RDMA_WRITE);
}

// "The provider will provide locking to ensure that ibv_wr_start() and ibv_wr_complete()/abort() form a
// per-QP critical section" (ibv_wr_post(3)).
TEST_F(WrTest, TwoThreadsTakeTurns) {
  constexpr int kRounds = 200;
  const auto build = [&](uint64_t id) {
    for (int i = 0; i < kRounds; i++) {
      ibv_wr_start(qp_);
      next(id, 0);
      ibv_wr_rdma_write(qp_, remote_.rkey(), remote_.address(id * 64));
      set_local(id * 64, 8);
      next(id);
      ibv_wr_rdma_write(qp_, remote_.rkey(), remote_.address(id * 64));
      set_local(id * 64, 8);
      if (ibv_wr_complete(qp_) != 0) i--;  // the queue is full until the other thread has polled
      ibv_wc wc;
      ibv_poll_cq(cq_.get(), 1, &wc);
    }
  };
  local_.fill(1);
  std::thread other(build, 1);
  build(2);
  other.join();
  EXPECT_TRUE(same_bytes(8, 64, 64));
  EXPECT_TRUE(same_bytes(8, 128, 128));
}

TEST_F(WrTest, OnlyTheOperationsAskedForAreDefined) {
  ibv_qp_init_attr_ex init = init_ex(IBV_QP_EX_WITH_SEND);
  const Qp qp(ibv_create_qp_ex(context_.get(), &init));
  ASSERT_NE(qp, nullptr);
  EXPECT_NE(ibv_qp_to_qp_ex(qp.get())->wr_send, nullptr);
  EXPECT_EQ(ibv_qp_to_qp_ex(qp.get())->wr_rdma_read, nullptr);
}

TEST_F(WrTest, AnOperationTheDeviceDoesNotOfferIsRefused) {
  for (uint64_t ops : {uint64_t{IBV_QP_EX_WITH_TSO}, uint64_t{1} << 40}) {
    ibv_qp_init_attr_ex init = init_ex(IBV_QP_EX_WITH_SEND | ops);
    errno = 0;
    EXPECT_EQ(ibv_create_qp_ex(context_.get(), &init), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
  }
}

TEST_F(WrTest, AnExtendedQpTakesOrdinaryRequestsToo) {
  local_.fill(9);
  EXPECT_EQ(carry_out(IBV_WR_RDMA_WRITE, local_.sge(0, 16)).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(same_bytes(16));
}

}  // namespace
}  // namespace verbena::test
