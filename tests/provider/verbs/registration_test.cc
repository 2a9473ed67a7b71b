// SPDX-License-Identifier: BSD-2-Clause
//
// ibv_alloc_null_mr, ibv_reg_dmabuf_mr(3), on-demand paging and ibv_advise_mr(3), ibv_fork_init(3).
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/in_child.h"
#include "pages.h"
#include "pair.h"

namespace verbena::test {
namespace {

// ---- the null region ----

class NullRegionTest : public PairTest {
 protected:
  void SetUp() override {
    PairTest::SetUp();
    if (HasFatalFailure()) return;
    null_.reset(ibv_alloc_null_mr(pd_.get()));
    ASSERT_NE(null_, nullptr);
  }
  void TearDown() override {
    requester_.reset();
    responder_.reset();
    null_.reset();
    PairTest::TearDown();
  }
  ibv_sge null_sge(uint32_t length, uint64_t address = 0) const {
    return {.addr = address, .length = length, .lkey = null_->lkey};
  }
  Mr null_;
};

TEST_F(NullRegionTest, ReadsAsZeros) {
  for (uint32_t length : {8u, 200u, 60000u}) {
    remote_.fill(1);
    ASSERT_EQ(carry_out(IBV_WR_RDMA_WRITE, null_sge(length)).status, IBV_WC_SUCCESS);
    for (uint32_t i = 0; i < length; i++) ASSERT_EQ(remote_.data()[i], 0) << i;
  }
}

TEST_F(NullRegionTest, SwallowsWhatIsReceived) {
  local_.fill(1);
  ibv_sge list[] = {null_sge(1000), remote_.sge(0, 8)};
  ASSERT_EQ(receive(list, 2), 0);
  ASSERT_EQ(carry_out(IBV_WR_SEND, local_.sge(0, 1008)).status, IBV_WC_SUCCESS);
  EXPECT_EQ(next_completion(responder_cq_.get()).byte_len, 1008u);
  EXPECT_EQ(memcmp(remote_.data(), local_.data() + 1000, 8), 0);
}

TEST_F(NullRegionTest, StaysZeroAfterSwallowing) {
  remote_.fill(1);
  ASSERT_EQ(carry_out(IBV_WR_RDMA_READ, null_sge(4096)).status, IBV_WC_SUCCESS);
  ASSERT_EQ(carry_out(IBV_WR_RDMA_WRITE, null_sge(4096)).status, IBV_WC_SUCCESS);
  EXPECT_EQ(remote_.data()[100], 0);
}

TEST_F(NullRegionTest, TakesAnyAddress) {
  EXPECT_EQ(carry_out(IBV_WR_RDMA_READ, null_sge(64, UINT64_MAX - 10)).status, IBV_WC_SUCCESS);
}

TEST_F(NullRegionTest, IsOfItsPd) {
  Pd other(ibv_alloc_pd(context_.get()));
  Mr foreign(ibv_alloc_null_mr(other.get()));
  const ibv_sge sge = {.addr = 0, .length = 8, .lkey = foreign->lkey};
  EXPECT_EQ(carry_out(IBV_WR_RDMA_WRITE, sge).status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(PdTest, ANullRegionKeepsItsPdBusy) {
  Mr null(ibv_alloc_null_mr(pd_.get()));
  EXPECT_EQ(ibv_dealloc_pd(pd_.get()), EBUSY);
}

// ---- dma-buf ----

TEST_F(PdTest, AClosedDescriptorIsNoDmabuf) {
  const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  close(fd);
  EXPECT_EQ(ibv_reg_dmabuf_mr(pd_.get(), 0, kPageSize, 0, fd, 0), nullptr);
  EXPECT_EQ(errno, EBADF);
}

TEST_F(PdTest, AnotherFileIsNoDmabuf) {
  const int fd = memfd_create("file", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(fd, kPageSize), 0);
  EXPECT_EQ(ibv_reg_dmabuf_mr(pd_.get(), 0, kPageSize, 0, fd, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  close(fd);
}

TEST_F(PdTest, ADmabufIsNotPagedOnDemand) {
  EXPECT_EQ(ibv_reg_dmabuf_mr(pd_.get(), 0, kPageSize, 0, 0, IBV_ACCESS_ON_DEMAND), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

// ---- on-demand paging ----

constexpr int kOnDemand = kAllAccess | IBV_ACCESS_ON_DEMAND;

TEST_F(DeviceTest, ClaimsOnDemandPaging) {
  ibv_device_attr_ex attr = {};
  ASSERT_EQ(ibv_query_device_ex(context_.get(), nullptr, &attr), 0);
  EXPECT_EQ(attr.odp_caps.general_caps, uint64_t{IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT});
  constexpr uint32_t kAll = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE |
                            IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC | IBV_ODP_SUPPORT_SRQ_RECV;
  EXPECT_EQ(attr.odp_caps.per_transport_caps.rc_odp_caps, kAll);
}

TEST_F(PdTest, OnDemandPagesNeedNotBeThereYet) {
  const Pages hole(1, PROT_NONE);
  Mr mr(ibv_reg_mr(pd_.get(), hole.data(), kPageSize, kOnDemand));
  EXPECT_NE(mr, nullptr);
}

TEST_F(PdTest, TheWholeAddressSpaceIsOnDemandOnly) {
  EXPECT_EQ(ibv_reg_mr(pd_.get(), nullptr, SIZE_MAX, kAllAccess), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(PdTest, TheWholeAddressSpaceHasNoHugePages) {
  EXPECT_EQ(ibv_reg_mr(pd_.get(), nullptr, SIZE_MAX, kOnDemand | IBV_ACCESS_HUGETLB), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

class OnDemandTest : public PairTest {
 protected:
  void make(void* addr, size_t length) {
    mr_.reset(ibv_reg_mr(pd_.get(), addr, length, kOnDemand));
    ASSERT_NE(mr_, nullptr) << strerror(errno);
  }
  void TearDown() override {
    requester_.reset();
    responder_.reset();
    mr_.reset();
    PairTest::TearDown();
  }
  ibv_sge sge(size_t offset, uint32_t length) const {
    return {.addr = pages_.address() + offset, .length = length, .lkey = mr_->lkey};
  }
  ibv_wc_status write(size_t offset, uint32_t length) {
    ibv_sge from = local_.sge(0, length);
    ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &from);
    wr.wr.rdma.remote_addr = pages_.address() + offset;
    wr.wr.rdma.rkey = mr_->rkey;
    return carry_out(wr).status;
  }
  int advise(ibv_advise_mr_advice advice, uint32_t flags, ibv_sge element) {
    return ibv_advise_mr(pd_.get(), advice, flags, &element, 1);
  }
  Pages pages_{16};
  Mr mr_;
};

TEST_F(OnDemandTest, AWriteFindsItsPage) {
  make(pages_.data(), pages_.size());
  local_.fill(3);
  EXPECT_EQ(write(3 * kPageSize + 5, 100), IBV_WC_SUCCESS);
  EXPECT_EQ(memcmp(pages_.data() + 3 * kPageSize + 5, local_.data(), 100), 0);
}

TEST_F(OnDemandTest, ASendReadsUntouchedPagesAsZeros) {
  make(pages_.data(), pages_.size());
  remote_.fill(1);
  ASSERT_EQ(receive(remote_.sge(0, 8192)), 0);
  EXPECT_EQ(carry_out(IBV_WR_SEND, sge(0, 8192)).status, IBV_WC_SUCCESS);
  EXPECT_EQ(next_status(responder_cq_.get()), IBV_WC_SUCCESS);
  EXPECT_EQ(remote_.data()[5000], 0);
}

TEST_F(OnDemandTest, TheWholeAddressSpaceTakesEveryBuffer) {
  make(nullptr, SIZE_MAX);
  local_.fill(4);
  EXPECT_EQ(write(7 * kPageSize, 64), IBV_WC_SUCCESS);
  EXPECT_EQ(pages_.data()[7 * kPageSize + 63], local_.data()[63]);
  ASSERT_EQ(receive(sge(0, 64)), 0);
  EXPECT_EQ(carry_out(IBV_WR_SEND, sge(7 * kPageSize, 64)).status, IBV_WC_SUCCESS);
  EXPECT_EQ(next_status(responder_cq_.get()), IBV_WC_SUCCESS);
  EXPECT_EQ(memcmp(pages_.data(), local_.data(), 64), 0);
}

TEST_F(OnDemandTest, AHoleIsFoundWhenItIsWrittenTo) {
  make(pages_.data(), pages_.size());
  ASSERT_EQ(mprotect(pages_.data(), kPageSize, PROT_NONE), 0);
  EXPECT_EQ(write(0, 64), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(OnDemandTest, AHoleIsFoundWhenItIsSentFrom) {
  make(pages_.data(), pages_.size());
  ASSERT_EQ(mprotect(pages_.data(), kPageSize, PROT_NONE), 0);
  ASSERT_EQ(receive(remote_.sge(0, 64)), 0);
  EXPECT_EQ(carry_out(IBV_WR_SEND, sge(0, 64)).status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(OnDemandTest, AHoleIsFoundWhenItIsReceivedInto) {
  make(pages_.data(), pages_.size());
  ASSERT_EQ(mprotect(pages_.data(), kPageSize, PROT_NONE), 0);
  ASSERT_EQ(receive(sge(0, 64)), 0);
  EXPECT_EQ(carry_out(IBV_WR_SEND, local_.sge(0, 64)).status, IBV_WC_REM_OP_ERR);
  EXPECT_EQ(next_status(responder_cq_.get()), IBV_WC_LOC_PROT_ERR);
}

TEST_F(OnDemandTest, AHoleIsFoundWhenAnAnswerIsReadInto) {
  make(pages_.data(), pages_.size());
  ASSERT_EQ(mprotect(pages_.data(), kPageSize, PROT_NONE), 0);
  EXPECT_EQ(carry_out(IBV_WR_RDMA_READ, sge(0, 64)).status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(OnDemandTest, AdvicePagesIn) {
  make(pages_.data(), pages_.size());
  unsigned char there[1] = {0};
  ASSERT_EQ(mincore(pages_.data() + kPageSize, kPageSize, there), 0);
  ASSERT_EQ(there[0] & 1, 0);
  for (const auto advice : {IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE})
    EXPECT_EQ(advise(advice, IBV_ADVISE_MR_FLAG_FLUSH, sge(kPageSize, 8)), 0);
  ASSERT_EQ(mincore(pages_.data() + kPageSize, kPageSize, there), 0);
  EXPECT_EQ(there[0] & 1, 1);
}

TEST_F(OnDemandTest, AdviceWithoutFaultsPagesNothingIn) {
  make(pages_.data(), pages_.size());
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, IBV_ADVISE_MR_FLAG_FLUSH, sge(kPageSize, 8)), 0);
  unsigned char there[1] = {0};
  ASSERT_EQ(mincore(pages_.data() + kPageSize, kPageSize, there), 0);
  EXPECT_EQ(there[0] & 1, 0);
}

TEST_F(OnDemandTest, AdviceOnTheWholeAddressSpace) {
  make(nullptr, SIZE_MAX);
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, sge(0, 8)), 0);
}

TEST_F(OnDemandTest, AdviceOutsideOfTheRegionIsEfault) {
  make(pages_.data(), kPageSize);
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, 0, sge(kPageSize - 4, 8)), EFAULT);
}

TEST_F(OnDemandTest, AdviceOnAHoleIsEfaultWhenFlushed) {
  make(pages_.data(), pages_.size());
  ASSERT_EQ(mprotect(pages_.data(), kPageSize, PROT_NONE), 0);
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH, sge(0, 8)), EFAULT);
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, 0, sge(0, 8)), 0);
}

TEST_F(OnDemandTest, AdviceOnAnotherKindOfRegionIsEnoent) {
  make(pages_.data(), kPageSize);
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, 0, local_.sge(0, 8)), ENOENT);
  ibv_sge unknown = sge(0, 8);
  unknown.lkey += 1;
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, 0, unknown), ENOENT);
}

TEST_F(OnDemandTest, AdviceOfAnotherPdIsEperm) {
  make(pages_.data(), kPageSize);
  Pd other(ibv_alloc_pd(context_.get()));
  ibv_sge element = sge(0, 8);
  EXPECT_EQ(ibv_advise_mr(other.get(), IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &element, 1), EPERM);
}

TEST_F(OnDemandTest, AdviceToWriteWhatIsReadOnlyIsEperm) {
  Mr read_only(ibv_reg_mr(pd_.get(), pages_.data(), kPageSize, IBV_ACCESS_ON_DEMAND));
  ASSERT_NE(read_only, nullptr);
  const ibv_sge element = {.addr = pages_.address(), .length = 8, .lkey = read_only->lkey};
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0, element), EPERM);
}

TEST_F(OnDemandTest, UnknownAdviceAndFlagsAreRefused) {
  make(pages_.data(), kPageSize);
  EXPECT_EQ(advise(static_cast<ibv_advise_mr_advice>(77), 0, sge(0, 8)), EOPNOTSUPP);
  EXPECT_EQ(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, 2, sge(0, 8)), EINVAL);
  EXPECT_EQ(ibv_advise_mr(pd_.get(), IBV_ADVISE_MR_ADVICE_PREFETCH, 0, nullptr, 0), EINVAL);
}

// ---- fork ----

// In a child, since it applies to the whole process, and before the first region: GoogleTest runs suites of
// this name first.
class ForkInitDeathTest : public testing::Test {
 protected:
  static ibv_pd* make_pd() {
    ibv_device** list = ibv_get_device_list(nullptr);
    ibv_context* context = list != nullptr && list[0] != nullptr ? ibv_open_device(list[0]) : nullptr;
    return context != nullptr ? ibv_alloc_pd(context) : nullptr;
  }
};

TEST_F(ForkInitDeathTest, IsUnneeded) {
  EXPECT_EQ(in_child([] {
              if (ibv_is_fork_initialized() != IBV_FORK_UNNEEDED) return 1;
              if (ibv_fork_init() != 0) return 2;
              return ibv_is_fork_initialized() == IBV_FORK_UNNEEDED ? 0 : 3;
            }),
            0);
}

// ibv_fork_init(3) is too late then (EINVAL), or has nothing to do: that depends on the version of libibverbs.
TEST_F(ForkInitDeathTest, IsUnneededAfterTheFirstRegionAsWell) {
  EXPECT_EQ(in_child([] {
              static char buffer[64];
              ibv_pd* pd = make_pd();
              if (pd == nullptr || ibv_reg_mr(pd, buffer, sizeof(buffer), 0) == nullptr) return 1;
              const int late = ibv_fork_init();
              if (late != 0 && late != EINVAL) return 2;
              return ibv_is_fork_initialized() == IBV_FORK_UNNEEDED ? 0 : 3;
            }),
            0);
}

TEST_F(ForkInitDeathTest, RegionsOfAForkAwareProgramWork) {
  EXPECT_EQ(in_child([] {
              if (ibv_fork_init() != 0) return 1;
              ibv_pd* pd = make_pd();
              const Pages pages(2);
              ibv_mr* mr = pd != nullptr ? ibv_reg_mr(pd, pages.data(), kPageSize, kAllAccess) : nullptr;
              if (mr == nullptr) return 2;
              if (ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, pages.data() + kPageSize,
                               kPageSize, 0) != 0)
                return 3;
              return ibv_dereg_mr(mr) == 0 ? 0 : 4;
            }),
            0);
}

}  // namespace
}  // namespace verbena::test
