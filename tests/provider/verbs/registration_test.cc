// SPDX-License-Identifier: BSD-2-Clause
//
// ibv_rereg_mr(3), ibv_alloc_null_mr, ibv_reg_dmabuf_mr(3), on-demand paging and ibv_advise_mr(3),
// ibv_fork_init(3).
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

namespace verbena::test {
namespace {

constexpr size_t kPageSize = 4096;

// Pages that are freed when done.
class Pages {
 public:
  explicit Pages(size_t count, int protection = PROT_READ | PROT_WRITE)
      : size_(count * kPageSize),
        data_(mmap(nullptr, size_, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    EXPECT_NE(data_, MAP_FAILED);
  }
  ~Pages() { munmap(data_, size_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  uint8_t* data() const { return static_cast<uint8_t*>(data_); }
  uint64_t address() const { return reinterpret_cast<uintptr_t>(data_); }
  size_t size() const { return size_; }

 private:
  size_t size_;
  void* data_;
};

// ---- rereg_mr ----

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
  // What becomes of a WRITE of one byte through the region.
  ibv_wc_status write(uint64_t address) {
    ibv_sge sge = local_.sge(0, 1);
    ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
    wr.wr.rdma.remote_addr = address;
    wr.wr.rdma.rkey = mr_->rkey;
    return carry_out(wr).status;
  }
  // What becomes of a SEND of one byte out of it.
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
// another PD, no right to write); what it does not name is right, and offered something wrong where
// libibverbs lets that pass (an access without its flag it does not). So a WRITE arrives if, and only if,
// each of the three is as it should be.
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

TEST_F(ReregTest, AMessageThatHasLandedGoesToItsOldBuffer) {
  local_.data()[0] = 9;
  ASSERT_EQ(receive({.addr = old_.address(), .length = 8, .lkey = mr_->lkey}), 0);
  ASSERT_EQ(carry_out(IBV_WR_SEND, local_.sge(0, 8)).status, IBV_WC_SUCCESS);
  ASSERT_EQ(rereg(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, new_.data(), new_.size(), 0), 0);
  EXPECT_EQ(old_.data()[0], 9);
  EXPECT_EQ(next_status(responder_cq_.get()), IBV_WC_SUCCESS);
}

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

TEST_F(OnDemandTest, AdviceOnAHoleIsEfaultForWhoWaits) {
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

// In a child, since it is for the whole of a process, and before its first region: GoogleTest runs suites of
// this name first.
class ForkInitDeathTest : public testing::Test {
 protected:
  static int in_child(int (*test)()) {
    const pid_t child = fork();
    if (child == 0) _exit(test());
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  static ibv_pd* make_pd() {
    ibv_device** list = ibv_get_device_list(nullptr);
    ibv_context* context = list != nullptr && list[0] != nullptr ? ibv_open_device(list[0]) : nullptr;
    return context != nullptr ? ibv_alloc_pd(context) : nullptr;
  }
};

TEST_F(ForkInitDeathTest, EnablesIt) {
  EXPECT_EQ(in_child([] {
              if (ibv_fork_init() != 0) return 1;
              const ibv_fork_status status = ibv_is_fork_initialized();
              return status == IBV_FORK_ENABLED || status == IBV_FORK_UNNEEDED ? 0 : 2;
            }),
            0);
}

TEST_F(ForkInitDeathTest, AfterTheFirstRegionIsTooLate) {
  EXPECT_EQ(in_child([] {
              static char buffer[64];
              ibv_pd* pd = make_pd();
              if (pd == nullptr || ibv_reg_mr(pd, buffer, sizeof(buffer), 0) == nullptr) return 1;
              if (ibv_fork_init() != EINVAL) return 2;
              return ibv_is_fork_initialized() == IBV_FORK_DISABLED ? 0 : 3;
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
