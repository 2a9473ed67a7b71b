// SPDX-License-Identifier: BSD-2-Clause
//
// Memory windows as a program sees them: ibv_alloc_mw(3), ibv_bind_mw(3), IBV_WR_BIND_MW, IBV_WR_LOCAL_INV
// and IBV_WR_SEND_WITH_INV of ibv_post_send(3). The responder binds; the requester writes and reads.
#include "pair.h"

namespace verbena::test {
namespace {

using Mw = std::unique_ptr<ibv_mw, Destroyer<ibv_dealloc_mw>>;

constexpr int kBindable = kAllAccess | IBV_ACCESS_MW_BIND;

TEST_F(DeviceTest, ClaimsWindowsOfBothTypes) {
  constexpr unsigned kFlags =
      IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_MEM_MGT_EXTENSIONS;
  EXPECT_EQ(device_.device_cap_flags & kFlags, kFlags);
  EXPECT_GT(device_.max_mw, 0);
}

class WindowTest : public PairTest {
 protected:
  static constexpr size_t kFrom = 4096;  // the window's part of the region
  static constexpr size_t kLength = 8192;

  void SetUp() override {
    PairTest::SetUp();
    if (HasFatalFailure()) return;
    region_ = Buffer(pd_.get(), kBufferSize, kBindable);
    mr_.reset(ibv_reg_mr(pd_.get(), region_.data(), kBufferSize, kBindable));
    ASSERT_NE(mr_, nullptr);
    local_.fill(1);
  }
  void TearDown() override {
    requester_.reset();
    responder_.reset();
    mw_.reset();
    mr_.reset();
    PairTest::TearDown();
  }
  void make(ibv_mw_type type) {
    mw_.reset(ibv_alloc_mw(pd_.get(), type));
    ASSERT_NE(mw_, nullptr);
  }
  ibv_mw_bind_info info(unsigned access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ) const {
    return {.mr = mr_.get(), .addr = region_.address(kFrom), .length = kLength, .mw_access_flags = access};
  }
  // Type 1.
  ibv_wc_status bind1(const ibv_mw_bind_info& what) {
    ibv_mw_bind bind = {.wr_id = 77, .send_flags = IBV_SEND_SIGNALED, .bind_info = what};
    EXPECT_EQ(ibv_bind_mw(responder_.get(), mw_.get(), &bind), 0);
    return bound();
  }
  // Type 2; the window's key is then rkey_.
  ibv_wc_status bind2(const ibv_mw_bind_info& what) {
    ibv_send_wr wr = {};
    wr.wr_id = 77;
    wr.opcode = IBV_WR_BIND_MW;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.bind_mw.mw = mw_.get();
    wr.bind_mw.rkey = rkey_ = ibv_inc_rkey(rkey_ != 0 ? rkey_ : mw_->rkey);
    wr.bind_mw.bind_info = what;
    EXPECT_EQ(post_on(responder_.get(), &wr), 0);
    return bound();
  }
  ibv_wc_status bound() {
    const ibv_wc wc = next_completion(responder_cq_.get());
    EXPECT_EQ(wc.wr_id, 77u);
    if (wc.status == IBV_WC_SUCCESS) {
      EXPECT_EQ(wc.opcode, IBV_WC_BIND_MW);
    }
    return wc.status;
  }
  static int post_on(ibv_qp* qp, ibv_send_wr* wr) {
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(qp, wr, &bad);
  }
  ibv_wc_status invalidate(ibv_qp* qp, ibv_cq* cq, uint32_t rkey) {
    ibv_send_wr wr = {};
    wr.opcode = IBV_WR_LOCAL_INV;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.invalidate_rkey = rkey;
    EXPECT_EQ(post_on(qp, &wr), 0);
    const ibv_wc wc = next_completion(cq);
    if (wc.status == IBV_WC_SUCCESS) {
      EXPECT_EQ(wc.opcode, IBV_WC_LOCAL_INV);
    }
    return wc.status;
  }
  ibv_wc_status rdma(ibv_wr_opcode opcode, uint32_t rkey, uint64_t at, uint32_t length = 64) {
    ibv_sge sge = local_.sge(0, length);
    ibv_send_wr wr = request(opcode, &sge);
    wr.wr.rdma.remote_addr = at;
    wr.wr.rdma.rkey = rkey;
    return carry_out(wr).status;
  }
  ibv_wc_status write(uint32_t rkey) { return rdma(IBV_WR_RDMA_WRITE, rkey, region_.address(kFrom)); }
  ibv_wc send_and_invalidate(uint32_t rkey, uint32_t length = 8) {
    ibv_sge sge = local_.sge(0, length);
    ibv_send_wr wr = request(IBV_WR_SEND_WITH_INV, &sge);
    wr.invalidate_rkey = rkey;
    return carry_out(wr);
  }

  Buffer region_;  // the bytes
  Mr mr_;          // the windows' region
  Mw mw_;
  uint32_t rkey_ = 0;
};

// ---- type 1 ----

TEST_F(WindowTest, Type1LetsThePeerWrite) {
  make(IBV_MW_TYPE_1);
  ASSERT_EQ(bind1(info()), IBV_WC_SUCCESS);
  EXPECT_EQ(write(mw_->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(memcmp(region_.data() + kFrom, local_.data(), 64), 0);
}

TEST_F(WindowTest, ItsKeyChangesWithEveryBind) {
  make(IBV_MW_TYPE_1);
  const uint32_t before = mw_->rkey;
  ASSERT_EQ(bind1(info()), IBV_WC_SUCCESS);
  EXPECT_EQ(mw_->rkey, ibv_inc_rkey(before));
}

TEST_F(WindowTest, AnUnboundWindowIsNoKey) {
  make(IBV_MW_TYPE_1);
  EXPECT_EQ(write(mw_->rkey), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(WindowTest, TheKeyOfAnEarlierBindIsNoKey) {
  make(IBV_MW_TYPE_1);
  ASSERT_EQ(bind1(info()), IBV_WC_SUCCESS);
  const uint32_t before = mw_->rkey;
  ASSERT_EQ(bind1(info()), IBV_WC_SUCCESS);
  EXPECT_EQ(write(before), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(WindowTest, BindingToNothingEndsType1) {
  make(IBV_MW_TYPE_1);
  ASSERT_EQ(bind1(info()), IBV_WC_SUCCESS);
  ASSERT_EQ(bind1({.mr = nullptr, .addr = 0, .length = 0, .mw_access_flags = 0}), IBV_WC_SUCCESS);
  EXPECT_EQ(write(mw_->rkey), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(WindowTest, TheWindowEndsBeforeItsRegion) {
  make(IBV_MW_TYPE_1);
  ASSERT_EQ(bind1(info()), IBV_WC_SUCCESS);
  EXPECT_EQ(rdma(IBV_WR_RDMA_WRITE, mw_->rkey, region_.address(kFrom + kLength - 32)), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(WindowTest, TheWindowHasItsOwnRights) {
  make(IBV_MW_TYPE_1);
  ASSERT_EQ(bind1(info(IBV_ACCESS_REMOTE_READ)), IBV_WC_SUCCESS);
  EXPECT_EQ(rdma(IBV_WR_RDMA_READ, mw_->rkey, region_.address(kFrom)), IBV_WC_SUCCESS);
  EXPECT_EQ(write(mw_->rkey), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(WindowTest, AtomicsNeedTheirRightOnTheWindow) {
  make(IBV_MW_TYPE_1);
  ASSERT_EQ(bind1(info(IBV_ACCESS_REMOTE_ATOMIC)), IBV_WC_SUCCESS);
  ibv_sge sge = local_.sge(0, 8);
  ibv_send_wr wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, &sge);
  wr.wr.atomic.remote_addr = region_.address(kFrom);
  wr.wr.atomic.rkey = mw_->rkey;
  wr.wr.atomic.compare_add = 5;
  EXPECT_EQ(carry_out(wr).status, IBV_WC_SUCCESS);
  EXPECT_EQ(region_.data()[kFrom], 5);
}

TEST_F(WindowTest, BindingAndWritingTakeTurnsInTheSendQueue) {
  make(IBV_MW_TYPE_1);
  ibv_sge sge = local_.sge(0, 8);
  ibv_send_wr send = request(IBV_WR_SEND, &sge);
  ASSERT_EQ(receive_on(requester_.get(), &sge, 1, 5), 0);
  ASSERT_EQ(post_on(responder_.get(), &send), 0);
  ASSERT_EQ(next_status(responder_cq_.get()), IBV_WC_SUCCESS);
  ASSERT_EQ(bind1(info()), IBV_WC_SUCCESS);
  ASSERT_EQ(receive_on(requester_.get(), &sge, 1, 6), 0);
  ASSERT_EQ(post_on(responder_.get(), &send), 0);
  EXPECT_EQ(next_status(responder_cq_.get()), IBV_WC_SUCCESS);
}

TEST_F(WindowTest, AZeroBasedType1IsInvalid) {
  make(IBV_MW_TYPE_1);
  ibv_mw_bind bind = {.wr_id = 0, .send_flags = 0, .bind_info = info(IBV_ACCESS_ZERO_BASED)};
  EXPECT_EQ(ibv_bind_mw(responder_.get(), mw_.get(), &bind), EINVAL);
}

TEST_F(WindowTest, BindMwIsForType1) {
  make(IBV_MW_TYPE_2);
  ibv_mw_bind bind = {.wr_id = 0, .send_flags = 0, .bind_info = info()};
  EXPECT_EQ(ibv_bind_mw(responder_.get(), mw_.get(), &bind), EINVAL);
}

// ---- type 2 ----

TEST_F(WindowTest, Type2LetsThePeerWrite) {
  make(IBV_MW_TYPE_2);
  ASSERT_EQ(bind2(info()), IBV_WC_SUCCESS);
  EXPECT_EQ(write(rkey_), IBV_WC_SUCCESS);
  EXPECT_EQ(memcmp(region_.data() + kFrom, local_.data(), 64), 0);
}

TEST_F(WindowTest, Type2IsForItsQpOnly) {
  make(IBV_MW_TYPE_2);
  ibv_send_wr wr = {};
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.bind_mw.mw = mw_.get();
  wr.bind_mw.rkey = ibv_inc_rkey(mw_->rkey);
  wr.bind_mw.bind_info = info();
  ASSERT_EQ(post_on(requester_.get(), &wr), 0);  // the other end of the same connection
  ASSERT_EQ(next_status(cq_.get()), IBV_WC_SUCCESS);
  EXPECT_EQ(write(wr.bind_mw.rkey), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(WindowTest, AZeroBasedWindowBeginsAtZero) {
  make(IBV_MW_TYPE_2);
  ASSERT_EQ(bind2(info(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED)), IBV_WC_SUCCESS);
  EXPECT_EQ(rdma(IBV_WR_RDMA_WRITE, rkey_, 100), IBV_WC_SUCCESS);
  EXPECT_EQ(memcmp(region_.data() + kFrom + 100, local_.data(), 64), 0);
}

TEST_F(WindowTest, LocalInvalidationEndsIt) {
  make(IBV_MW_TYPE_2);
  ASSERT_EQ(bind2(info()), IBV_WC_SUCCESS);
  ASSERT_EQ(invalidate(responder_.get(), responder_cq_.get(), rkey_), IBV_WC_SUCCESS);
  EXPECT_EQ(write(rkey_), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(WindowTest, AfterInvalidationItIsBoundAgain) {
  make(IBV_MW_TYPE_2);
  ASSERT_EQ(bind2(info()), IBV_WC_SUCCESS);
  ASSERT_EQ(invalidate(responder_.get(), responder_cq_.get(), rkey_), IBV_WC_SUCCESS);
  ASSERT_EQ(bind2(info()), IBV_WC_SUCCESS);
  EXPECT_EQ(write(rkey_), IBV_WC_SUCCESS);
}

TEST_F(WindowTest, ThePeerInvalidatesAndTheReceiverIsTold) {
  for (uint32_t length : {0u, 8u, 200u, 5000u}) {
    make(IBV_MW_TYPE_2);
    rkey_ = 0;
    ASSERT_EQ(bind2(info()), IBV_WC_SUCCESS);
    ASSERT_EQ(receive(remote_.sge(0, 5000)), 0);
    const ibv_wc sent = send_and_invalidate(rkey_, length);
    EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
    EXPECT_EQ(sent.opcode, IBV_WC_SEND);
    const ibv_wc received = next_completion(responder_cq_.get());
    EXPECT_EQ(received.status, IBV_WC_SUCCESS);
    EXPECT_EQ(received.opcode, IBV_WC_RECV);
    EXPECT_EQ(received.byte_len, length);
    EXPECT_EQ(received.wc_flags, unsigned{IBV_WC_WITH_INV});
    EXPECT_EQ(received.invalidated_rkey, rkey_);
    EXPECT_TRUE(same_bytes(length));
  }
  EXPECT_EQ(write(rkey_), IBV_WC_REM_ACCESS_ERR);
}

// An invalidation that fails is an error of class J (InfiniBand vol. 1, 9.9.6.3; so named in rxe_resp.c): the
// responder fails, and sends no NAK. The requester learns of it as of a peer that is silent.
constexpr Connection kImpatient = {.timeout = 10, .retry_count = 1};

TEST_F(WindowTest, InvalidatingWhatIsNotBoundFailsWithoutNak) {
  for (uint32_t length : {0u, 8u, 200u, 5000u}) {
    make_pair(kImpatient);
    make(IBV_MW_TYPE_2);
    ASSERT_EQ(receive(remote_.sge(0, 5000)), 0);
    EXPECT_EQ(send_and_invalidate(mw_->rkey, length).status, IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(next_status(responder_cq_.get()), IBV_WC_LOC_ACCESS_ERR);
    EXPECT_EQ(state_of(responder_.get()), IBV_QPS_ERR);
    EXPECT_EQ(state_of(requester_.get()), IBV_QPS_ERR);
  }
}

TEST_F(WindowTest, ARegionsKeyCannotBeInvalidatedByThePeer) {
  make_pair(kImpatient);
  ASSERT_EQ(receive(remote_.sge(0, 64)), 0);
  EXPECT_EQ(send_and_invalidate(mr_->rkey).status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(next_status(responder_cq_.get()), IBV_WC_LOC_ACCESS_ERR);
}

TEST_F(WindowTest, InvalidationWaitsForAReceive) {
  make(IBV_MW_TYPE_2);
  ASSERT_EQ(bind2(info()), IBV_WC_SUCCESS);
  ibv_sge sge = local_.sge(0, 8);
  ibv_send_wr wr = request(IBV_WR_SEND_WITH_INV, &sge);
  wr.invalidate_rkey = rkey_;
  ASSERT_EQ(post(&wr), 0);
  EXPECT_TRUE(is_empty(cq_.get()));
  ASSERT_EQ(receive(remote_.sge(0, 64)), 0);
  EXPECT_EQ(next_status(cq_.get()), IBV_WC_SUCCESS);
  EXPECT_EQ(next_completion(responder_cq_.get()).invalidated_rkey, rkey_);
}

TEST_F(WindowTest, DeallocationEndsIt) {
  make(IBV_MW_TYPE_2);
  ASSERT_EQ(bind2(info()), IBV_WC_SUCCESS);
  mw_.reset();
  EXPECT_EQ(write(rkey_), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(WindowTest, AWindowDoesNotOutliveItsQpsConnection) {
  make(IBV_MW_TYPE_2);
  ASSERT_EQ(bind2(info()), IBV_WC_SUCCESS);
  make_pair();
  EXPECT_EQ(write(rkey_), IBV_WC_REM_ACCESS_ERR);
}

// ---- what binding refuses: the completion says so, and the QP is in error ----

TEST_F(WindowTest, ABoundType2IsNotBoundAgain) {
  make(IBV_MW_TYPE_2);
  ASSERT_EQ(bind2(info()), IBV_WC_SUCCESS);
  EXPECT_EQ(bind2(info()), IBV_WC_MW_BIND_ERR);
  EXPECT_EQ(state_of(responder_.get()), IBV_QPS_ERR);
}

TEST_F(WindowTest, TheRegionNeedsTheBindRight) {
  make(IBV_MW_TYPE_2);
  mr_.reset(ibv_reg_mr(pd_.get(), region_.data(), kBufferSize, kAllAccess));
  EXPECT_EQ(bind2(info()), IBV_WC_MW_BIND_ERR);
}

TEST_F(WindowTest, WritingNeedsLocalWriteOnTheRegion) {
  make(IBV_MW_TYPE_2);
  mr_.reset(ibv_reg_mr(pd_.get(), region_.data(), kBufferSize, IBV_ACCESS_MW_BIND));
  EXPECT_EQ(bind2(info(IBV_ACCESS_REMOTE_WRITE)), IBV_WC_MW_BIND_ERR);
}

TEST_F(WindowTest, TheWindowLiesInsideItsRegion) {
  make(IBV_MW_TYPE_2);
  ibv_mw_bind_info outside = info();
  outside.length = kBufferSize;
  EXPECT_EQ(bind2(outside), IBV_WC_MW_BIND_ERR);
}

TEST_F(WindowTest, RegionAndWindowAreOfOnePd) {
  make(IBV_MW_TYPE_2);
  Pd other(ibv_alloc_pd(context_.get()));
  mr_.reset(ibv_reg_mr(other.get(), region_.data(), kBufferSize, kBindable));
  EXPECT_EQ(bind2(info()), IBV_WC_MW_BIND_ERR);
  mr_.reset();
}

TEST_F(WindowTest, WindowAndQpAreOfOnePd) {
  Pd other(ibv_alloc_pd(context_.get()));
  mw_.reset(ibv_alloc_mw(other.get(), IBV_MW_TYPE_2));
  mr_.reset(ibv_reg_mr(other.get(), region_.data(), kBufferSize, kBindable));
  EXPECT_EQ(bind2(info()), IBV_WC_MW_BIND_ERR);
  mw_.reset();
  mr_.reset();
}

TEST_F(WindowTest, InvalidatingWhatIsNotBoundIsAnErrorHere) {
  make(IBV_MW_TYPE_2);
  EXPECT_EQ(invalidate(responder_.get(), responder_cq_.get(), mw_->rkey), IBV_WC_MW_BIND_ERR);
}

TEST_F(WindowTest, ARegionIsNotInvalidated) {
  EXPECT_EQ(invalidate(responder_.get(), responder_cq_.get(), mr_->rkey), IBV_WC_MW_BIND_ERR);
}

TEST_F(WindowTest, RequestsBehindARefusedBindAreFlushed) {
  make(IBV_MW_TYPE_2);
  ASSERT_EQ(invalidate(responder_.get(), responder_cq_.get(), mw_->rkey), IBV_WC_MW_BIND_ERR);
  EXPECT_EQ(bind2(info()), IBV_WC_WR_FLUSH_ERR);
}

// ---- objects in use cannot be destroyed ----

TEST_F(WindowTest, ABoundRegionIsNotDeregistered) {
  make(IBV_MW_TYPE_2);
  ASSERT_EQ(bind2(info()), IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_dereg_mr(mr_.get()), EBUSY);
  EXPECT_EQ(write(rkey_), IBV_WC_SUCCESS);
}

TEST_F(WindowTest, ABoundRegionIsNotReregistered) {
  make(IBV_MW_TYPE_2);
  ASSERT_EQ(bind2(info()), IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_rereg_mr(mr_.get(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kBindable),
            IBV_REREG_MR_ERR_CMD);
  EXPECT_EQ(errno, EBUSY);
}

TEST_F(PdTest, IsBusyWhileItHasAWindow) {
  const Mw mw(ibv_alloc_mw(pd_.get(), IBV_MW_TYPE_2));
  ASSERT_NE(mw, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(pd_.get()), EBUSY);
}

TEST_F(PdTest, AWindowOfNoTypeIsInvalid) {
  EXPECT_EQ(ibv_alloc_mw(pd_.get(), static_cast<ibv_mw_type>(3)), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace
}  // namespace verbena::test
