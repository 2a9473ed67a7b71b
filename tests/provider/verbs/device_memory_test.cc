// SPDX-License-Identifier: BSD-2-Clause
//
// ibv_alloc_dm(3): device memory, its copies and its regions.
#include <vector>

#include "pair.h"

namespace verbena::test {
namespace {

constexpr size_t kSize = 4096;
constexpr unsigned kDmAccess = static_cast<unsigned>(kAllAccess) | IBV_ACCESS_ZERO_BASED;

using Dm = std::unique_ptr<ibv_dm, Destroyer<ibv_free_dm>>;

ibv_dm* alloc(ibv_context* context, size_t length, uint32_t log_align = 0, uint32_t comp_mask = 0) {
  ibv_alloc_dm_attr attr = {.length = length, .log_align_req = log_align, .comp_mask = comp_mask};
  return ibv_alloc_dm(context, &attr);
}

class DmTest : public PairTest {
 protected:
  void SetUp() override {
    PairTest::SetUp();
    if (HasFatalFailure()) return;
    ibv_device_attr_ex attr = {};
    ASSERT_EQ(ibv_query_device_ex(context_.get(), nullptr, &attr), 0);
    max_ = attr.max_dm_size;
    ASSERT_GE(max_, 2 * kSize);
    dm_.reset(alloc(context_.get(), kSize));
    ASSERT_NE(dm_, nullptr);
  }
  void TearDown() override {
    requester_.reset();
    responder_.reset();
    mr_.reset();
    dm_.reset();
    PairTest::TearDown();
  }
  void register_dm(uint64_t offset = 0, size_t length = kSize, unsigned access = kDmAccess) {
    mr_.reset(ibv_reg_dm_mr(pd_.get(), dm_.get(), offset, length, access));
    ASSERT_NE(mr_, nullptr) << strerror(errno);
  }
  int refused_registration(uint64_t offset, size_t length, unsigned access = kDmAccess) {
    errno = 0;
    EXPECT_EQ(ibv_reg_dm_mr(pd_.get(), dm_.get(), offset, length, access), nullptr);
    return errno;
  }
  ibv_wc_status rdma(ibv_wr_opcode opcode, uint64_t at, uint32_t length) {
    ibv_sge sge = local_.sge(0, length);
    ibv_send_wr wr = request(opcode, &sge);
    wr.wr.rdma.remote_addr = at;
    wr.wr.rdma.rkey = mr_->rkey;
    return carry_out(wr).status;
  }

  size_t max_ = 0;
  Dm dm_;
  Mr mr_;
};

TEST_F(DmTest, IsCopiedToAndFrom) {
  const std::vector<uint8_t> out(64, 0x5a);
  std::vector<uint8_t> in(64);
  ASSERT_EQ(ibv_memcpy_to_dm(dm_.get(), 8, out.data(), 64), 0);
  ASSERT_EQ(ibv_memcpy_from_dm(in.data(), dm_.get(), 8, 64), 0);
  EXPECT_EQ(in, out);
}

TEST_F(DmTest, ACopyOutsideIsEfault) {
  uint8_t bytes[8] = {};
  EXPECT_EQ(ibv_memcpy_to_dm(dm_.get(), kSize - 4, bytes, 8), EFAULT);
  EXPECT_EQ(ibv_memcpy_from_dm(bytes, dm_.get(), kSize + 4, 4), EFAULT);
  EXPECT_EQ(ibv_memcpy_from_dm(bytes, dm_.get(), UINT64_MAX - 3, 8), EFAULT);
}

TEST_F(DmTest, ACopyIsInWordsOf4) {
  uint8_t bytes[8] = {};
  EXPECT_EQ(ibv_memcpy_to_dm(dm_.get(), 3, bytes, 4), EINVAL);
  EXPECT_EQ(ibv_memcpy_from_dm(bytes, dm_.get(), 4, 3), EINVAL);
}

TEST_F(DmTest, AWriteReachesIt) {
  register_dm();
  local_.fill(1);
  ASSERT_EQ(rdma(IBV_WR_RDMA_WRITE, 16, 100), IBV_WC_SUCCESS);
  std::vector<uint8_t> in(100);
  ASSERT_EQ(ibv_memcpy_from_dm(in.data(), dm_.get(), 16, 100), 0);
  EXPECT_EQ(memcmp(in.data(), local_.data(), 100), 0);
}

TEST_F(DmTest, AReadComesOutOfIt) {
  register_dm();
  const std::vector<uint8_t> out(64, 0x77);
  ASSERT_EQ(ibv_memcpy_to_dm(dm_.get(), 0, out.data(), 64), 0);
  ASSERT_EQ(rdma(IBV_WR_RDMA_READ, 0, 64), IBV_WC_SUCCESS);
  EXPECT_EQ(memcmp(local_.data(), out.data(), 64), 0);
}

TEST_F(DmTest, AnAtomicChangesIt) {
  register_dm();
  const uint64_t five = 5;
  ASSERT_EQ(ibv_memcpy_to_dm(dm_.get(), 8, &five, 8), 0);
  ibv_sge sge = local_.sge(0, 8);
  ibv_send_wr wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, &sge);
  wr.wr.atomic.remote_addr = 8;
  wr.wr.atomic.rkey = mr_->rkey;
  wr.wr.atomic.compare_add = 3;
  ASSERT_EQ(carry_out(wr).status, IBV_WC_SUCCESS);
  uint64_t after = 0;
  ASSERT_EQ(ibv_memcpy_from_dm(&after, dm_.get(), 8, 8), 0);
  EXPECT_EQ(after, 8u);
}

TEST_F(DmTest, SendsAndReceivesByOffset) {
  register_dm();
  const std::vector<uint8_t> out(64, 0x33);
  ASSERT_EQ(ibv_memcpy_to_dm(dm_.get(), 0, out.data(), 64), 0);
  ASSERT_EQ(receive({.addr = 128, .length = 64, .lkey = mr_->lkey}), 0);
  ASSERT_EQ(carry_out(IBV_WR_SEND, {.addr = 0, .length = 64, .lkey = mr_->lkey}).status, IBV_WC_SUCCESS);
  ASSERT_EQ(next_status(responder_cq_.get()), IBV_WC_SUCCESS);
  std::vector<uint8_t> in(64);
  ASSERT_EQ(ibv_memcpy_from_dm(in.data(), dm_.get(), 128, 64), 0);
  EXPECT_EQ(in, out);
}

TEST_F(DmTest, ARegionOfAPartBeginsAtZeroToo) {
  register_dm(256, 64);
  local_.fill(9);
  ASSERT_EQ(rdma(IBV_WR_RDMA_WRITE, 0, 64), IBV_WC_SUCCESS);
  std::vector<uint8_t> in(64);
  ASSERT_EQ(ibv_memcpy_from_dm(in.data(), dm_.get(), 256, 64), 0);
  EXPECT_EQ(memcmp(in.data(), local_.data(), 64), 0);
}

TEST_F(DmTest, ARegionOfAPartEndsThere) {
  register_dm(256, 64);
  EXPECT_EQ(rdma(IBV_WR_RDMA_WRITE, 60, 8), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(DmTest, ARegionIsZeroBased) { EXPECT_EQ(refused_registration(0, 64, IBV_ACCESS_LOCAL_WRITE), EINVAL); }

TEST_F(DmTest, ARegionLiesInside) {
  EXPECT_EQ(refused_registration(0, kSize + 4), EINVAL);
  EXPECT_EQ(refused_registration(kSize - 4, 8), EINVAL);
  EXPECT_EQ(refused_registration(UINT64_MAX, 8), EINVAL);
}

// The kernel asks for no length (UVERBS_METHOD_DM_MR_REG).
TEST_F(DmTest, ARegionMayBeEmpty) { register_dm(kSize, 0); }

TEST_F(DmTest, FlagsOfOtherMemoryAreRefused) {
  EXPECT_EQ(refused_registration(0, 64, kDmAccess | IBV_ACCESS_ON_DEMAND), EINVAL);
}

TEST_F(DmTest, ItsRegionCannotBeReregistered) {
  register_dm();
  EXPECT_NE(ibv_rereg_mr(mr_.get(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE),
            0);
}

TEST_F(DmTest, IsBusyWhileItHasARegion) {
  register_dm();
  EXPECT_EQ(ibv_free_dm(dm_.get()), EBUSY);
}

TEST_F(DmTest, ThereIsAsMuchAsTheDeviceSays) {
  dm_.reset();
  Dm all(alloc(context_.get(), max_));
  EXPECT_NE(all, nullptr);
  EXPECT_EQ(alloc(context_.get(), 4), nullptr);
  EXPECT_EQ(errno, ENOMEM);
}

TEST_F(DmTest, MoreThanThereIsIsInvalid) {
  EXPECT_EQ(alloc(context_.get(), max_ + 1), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(DmTest, NothingIsInvalid) {
  EXPECT_EQ(alloc(context_.get(), 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(DmTest, AlignmentUpToAPage) {
  Dm aligned(alloc(context_.get(), 64, 12));
  EXPECT_NE(aligned, nullptr);
  EXPECT_EQ(alloc(context_.get(), 64, 13), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(DmTest, UnknownAttributesAreInvalid) {
  EXPECT_EQ(alloc(context_.get(), 64, 0, 1), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace
}  // namespace verbena::test
