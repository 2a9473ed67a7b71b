// SPDX-License-Identifier: BSD-2-Clause
//
// ibv_rereg_mr(3): what changes, what stays, and what is refused.
#include "pages.h"
#include "pair.h"

namespace verbena::test {
namespace {

class ReregTest : public PairTest {
 protected:
  void SetUp() override {
    PairTest::SetUp();
    if (HasFatalFailure()) return;
    other_pd_.reset(ibv_alloc_pd(context_.get()));
    ASSERT_NE(other_pd_, nullptr);
    mr_.reset(ibv_reg_mr(pd_.get(), old_.data(), old_.size(), kAllAccess));
    ASSERT_NE(mr_, nullptr);
  }
  void TearDown() override {
    requester_.reset();
    responder_.reset();
    mr_.reset();
    PairTest::TearDown();
  }
  int rereg(int flags, ibv_pd* pd, void* addr, size_t length, int access) {
    return ibv_rereg_mr(mr_.get(), flags, pd, addr, length, access);
  }
  // Status of a WRITE of one byte through the region.
  ibv_wc_status write(uint64_t address) {
    ibv_sge sge = local_.sge(0, 1);
    ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
    wr.wr.rdma.remote_addr = address;
    wr.wr.rdma.rkey = mr_->rkey;
    return carry_out(wr).status;
  }
  // Status of a SEND of one byte out of it.
  ibv_wc_status send(uint64_t address) {
    EXPECT_EQ(receive(remote_.sge(0, 1)), 0);
    const ibv_sge sge = {.addr = address, .length = 1, .lkey = mr_->lkey};
    return carry_out(IBV_WR_SEND, sge).status;
  }

  Pd other_pd_;
  Pages old_{2};
  Pages new_{4};
  Mr mr_;
};

TEST_F(ReregTest, TranslationMovesTheRegion) {
  ASSERT_EQ(rereg(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, new_.data(), new_.size(), 0), 0);
  EXPECT_EQ(mr_->addr, new_.data());
  EXPECT_EQ(mr_->length, new_.size());
  local_.data()[0] = 7;
  EXPECT_EQ(write(new_.address() + new_.size() - 1), IBV_WC_SUCCESS);
  EXPECT_EQ(new_.data()[new_.size() - 1], 7);
}

TEST_F(ReregTest, TheOldRangeIsGone) {
  ASSERT_EQ(rereg(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, new_.data(), new_.size(), 0), 0);
  EXPECT_EQ(write(old_.address()), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(ReregTest, AccessCanBeTaken) {
  ASSERT_EQ(write(old_.address()), IBV_WC_SUCCESS);
  ASSERT_EQ(rereg(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE), 0);
  EXPECT_EQ(write(old_.address()), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(ReregTest, AccessCanBeGiven) {
  ASSERT_EQ(rereg(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0), 0);
  ASSERT_EQ(rereg(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAllAccess), 0);
  EXPECT_EQ(write(old_.address()), IBV_WC_SUCCESS);
}

TEST_F(ReregTest, APdChangesForLocalUseToo) {
  ASSERT_EQ(rereg(IBV_REREG_MR_CHANGE_PD, other_pd_.get(), nullptr, 0, 0), 0);
  EXPECT_EQ(mr_->pd, other_pd_.get());
  EXPECT_EQ(send(old_.address()), IBV_WC_LOC_PROT_ERR);
}

TEST_F(ReregTest, APostedReceiveFindsThePdChanged) {
  const ibv_sge into = {.addr = old_.address(), .length = 64, .lkey = mr_->lkey};
  ASSERT_EQ(receive(into), 0);
  ASSERT_EQ(rereg(IBV_REREG_MR_CHANGE_PD, other_pd_.get(), nullptr, 0, 0), 0);
  EXPECT_EQ(carry_out(IBV_WR_SEND, local_.sge(0, 8)).status, IBV_WC_REM_OP_ERR);
  EXPECT_EQ(next_status(responder_cq_.get()), IBV_WC_LOC_PROT_ERR);
}

TEST_F(ReregTest, ThePdsCountTheirRegions) {
  ASSERT_EQ(rereg(IBV_REREG_MR_CHANGE_PD, other_pd_.get(), nullptr, 0, 0), 0);
  EXPECT_EQ(ibv_dealloc_pd(other_pd_.get()), EBUSY);
  ASSERT_EQ(rereg(IBV_REREG_MR_CHANGE_PD, pd_.get(), nullptr, 0, 0), 0);
}

TEST_F(ReregTest, EverythingAtOnce) {
  constexpr int kAll = IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
  ASSERT_EQ(rereg(kAll, other_pd_.get(), new_.data(), kPageSize, IBV_ACCESS_LOCAL_WRITE), 0);
  ASSERT_EQ(rereg(kAll, pd_.get(), new_.data() + kPageSize, kPageSize, kAllAccess), 0);
  EXPECT_EQ(write(new_.address() + kPageSize), IBV_WC_SUCCESS);
}

// Each set of flags changes what it names and nothing else. What it names is wrong before (another range,
// another PD, no right to write). What it does not name is right, and the call passes a wrong value for it
// where libibverbs allows that (not an access without its flag). So a WRITE arrives if and only if each of
// the three is as it should be.
class ReregFlagsTest : public ReregTest, public testing::WithParamInterface<int> {};

TEST_P(ReregFlagsTest, ChangeWhatTheyNameAndNothingElse) {
  const int flags = GetParam();
  const bool moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  const bool changes_pd = (flags & IBV_REREG_MR_CHANGE_PD) != 0;
  const bool changes_access = (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0;
  mr_.reset(ibv_reg_mr(changes_pd ? other_pd_.get() : pd_.get(), moves ? old_.data() : new_.data(), kPageSize,
                       changes_access ? IBV_ACCESS_LOCAL_WRITE : kAllAccess));
  ASSERT_NE(mr_, nullptr);
  const uint32_t lkey = mr_->lkey, rkey = mr_->rkey;
  ASSERT_EQ(rereg(flags, changes_pd ? pd_.get() : other_pd_.get(), moves ? new_.data() : old_.data(),
                  kPageSize, changes_access ? kAllAccess : 0),
            0);
  EXPECT_EQ(mr_->pd, pd_.get());
  EXPECT_EQ(mr_->addr, new_.data());
  EXPECT_EQ(mr_->lkey, lkey);
  EXPECT_EQ(mr_->rkey, rkey);
  local_.data()[0] = 7;
  EXPECT_EQ(write(new_.address()), IBV_WC_SUCCESS);
  EXPECT_EQ(new_.data()[0], 7);
}
INSTANTIATE_TEST_SUITE_P(OfEveryCombination, ReregFlagsTest, testing::Range(1, 8), [](const auto& flags) {
  std::string name;
  if ((flags.param & IBV_REREG_MR_CHANGE_TRANSLATION) != 0) name += "Translation";
  if ((flags.param & IBV_REREG_MR_CHANGE_PD) != 0) name += "Pd";
  if ((flags.param & IBV_REREG_MR_CHANGE_ACCESS) != 0) name += "Access";
  return name;
});

TEST_F(ReregTest, AZeroBasedRegionBeginsAtZeroAfterwards) {
  ASSERT_EQ(rereg(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAllAccess | IBV_ACCESS_ZERO_BASED), 0);
  EXPECT_EQ(write(0), IBV_WC_SUCCESS);
}

// "IBV_REREG_MR_ERR_INPUT - Old MR is valid, an input error was detected by libibverbs."
TEST_F(ReregTest, InputErrorsAreLibibverbs) {
  EXPECT_EQ(rereg(1 << 10, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(rereg(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, nullptr, 8, 0), IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(rereg(IBV_REREG_MR_CHANGE_PD, pd_.get(), nullptr, 0, IBV_ACCESS_LOCAL_WRITE),
            IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(write(old_.address()), IBV_WC_SUCCESS);
}

TEST_F(ReregTest, NothingToChangeIsACommandError) {
  EXPECT_EQ(rereg(0, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_CMD);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(ReregTest, ContradictoryAccessIsACommandError) {
  EXPECT_EQ(rereg(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_WRITE),
            IBV_REREG_MR_ERR_CMD);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(ReregTest, UnmappedMemoryIsACommandError) {
  const Pages hole(1, PROT_NONE);
  EXPECT_EQ(rereg(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, hole.data(), kPageSize, 0), IBV_REREG_MR_ERR_CMD);
  EXPECT_EQ(errno, EFAULT);
}

TEST_F(ReregTest, AnEagerMessageGoesToItsOldBuffer) {
  local_.data()[0] = 9;
  ASSERT_EQ(receive({.addr = old_.address(), .length = 8, .lkey = mr_->lkey}), 0);
  ASSERT_EQ(carry_out(IBV_WR_SEND, local_.sge(0, 8)).status, IBV_WC_SUCCESS);
  ASSERT_EQ(rereg(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, new_.data(), new_.size(), 0), 0);
  EXPECT_EQ(old_.data()[0], 9);
  EXPECT_EQ(next_status(responder_cq_.get()), IBV_WC_SUCCESS);
}

}  // namespace
}  // namespace verbena::test
