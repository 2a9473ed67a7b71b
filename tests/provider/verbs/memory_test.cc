// SPDX-License-Identifier: BSD-2-Clause
//
// ibv_alloc_pd(3), ibv_reg_mr(3).
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <set>
#include <vector>

#include "fixture.h"

namespace verbena::test {
namespace {

constexpr size_t kPage = 4096;

// A page with the given protection, unmapped when done.
class Page {
 public:
  explicit Page(int protection)
      : address_(mmap(nullptr, kPage, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    EXPECT_NE(address_, MAP_FAILED);
  }
  ~Page() { munmap(address_, kPage); }
  void* get() const { return address_; }

 private:
  void* address_;
};

TEST_F(PdTest, TwoPdsHaveDifferentHandles) {
  Pd other(ibv_alloc_pd(context_.get()));
  ASSERT_NE(other, nullptr);
  EXPECT_NE(other->handle, pd_->handle);
}

TEST_F(PdTest, IsBusyWhileItHasAnMr) {
  Buffer buffer(pd_.get(), 64);
  EXPECT_EQ(ibv_dealloc_pd(pd_.get()), EBUSY);
}

TEST_F(CqTest, PdIsBusyWhileItHasAQp) {
  Qp qp = make_qp();
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(pd_.get()), EBUSY);
}

TEST_F(PdTest, LkeyAndRkeyDiffer) {
  Buffer buffer(pd_.get(), 64);
  EXPECT_NE(buffer.lkey(), buffer.rkey());
}

TEST_F(PdTest, KeysOfManyMrsDiffer) {
  std::vector<Buffer> buffers;
  std::set<uint32_t> lkeys;
  std::set<uint32_t> rkeys;
  for (int i = 0; i < 100; i++) {
    buffers.emplace_back(pd_.get(), 64);
    lkeys.insert(buffers.back().lkey());
    rkeys.insert(buffers.back().rkey());
  }
  EXPECT_EQ(lkeys.size(), 100u);
  EXPECT_EQ(rkeys.size(), 100u);
}

struct AccessRule {
  int access;
  int error;  // 0: registers
};
class AccessRuleTest : public PdTest, public testing::WithParamInterface<AccessRule> {};

TEST_P(AccessRuleTest, OfRegMr) {
  Page page(PROT_READ | PROT_WRITE);
  errno = 0;
  Mr mr(ibv_reg_mr(pd_.get(), page.get(), kPage, GetParam().access));
  EXPECT_EQ(mr != nullptr ? 0 : errno, GetParam().error);
}

// "If IBV_ACCESS_REMOTE_WRITE or IBV_ACCESS_REMOTE_ATOMIC is set, then IBV_ACCESS_LOCAL_WRITE must be set
// too."
INSTANTIATE_TEST_SUITE_P(Table, AccessRuleTest,
                         testing::Values(AccessRule{0, 0}, AccessRule{IBV_ACCESS_LOCAL_WRITE, 0},
                                         AccessRule{IBV_ACCESS_REMOTE_READ, 0},
                                         AccessRule{IBV_ACCESS_REMOTE_WRITE, EINVAL},
                                         AccessRule{IBV_ACCESS_REMOTE_ATOMIC, EINVAL},
                                         AccessRule{IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ, EINVAL},
                                         AccessRule{IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, 0},
                                         AccessRule{IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC, 0},
                                         AccessRule{kAllAccess, 0},
                                         AccessRule{kAllAccess | IBV_ACCESS_ZERO_BASED, 0},
                                         AccessRule{kAllAccess | IBV_ACCESS_RELAXED_ORDERING, 0},
                                         AccessRule{kAllAccess | IBV_ACCESS_ON_DEMAND, 0},
                                         AccessRule{IBV_ACCESS_LOCAL_WRITE | 1 << 19, EINVAL}));

TEST_F(PdTest, UnmappedMemoryIsEfault) {
  void* hole = mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(hole, kPage);
  EXPECT_EQ(ibv_reg_mr(pd_.get(), hole, kPage, 0), nullptr);
  EXPECT_EQ(errno, EFAULT);
}

TEST_F(PdTest, AHoleInTheMiddleIsEfault) {
  auto* area = static_cast<char*>(
      mmap(nullptr, 3 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  munmap(area + kPage, kPage);
  EXPECT_EQ(ibv_reg_mr(pd_.get(), area, 3 * kPage, 0), nullptr);
  EXPECT_EQ(errno, EFAULT);
  munmap(area, 3 * kPage);
}

TEST_F(PdTest, ReadOnlyMemoryForWritingIsEfault) {
  Page page(PROT_READ);
  EXPECT_EQ(ibv_reg_mr(pd_.get(), page.get(), kPage, IBV_ACCESS_LOCAL_WRITE), nullptr);
  EXPECT_EQ(errno, EFAULT);
}

TEST_F(PdTest, ReadOnlyMemoryForReadingRegisters) {
  Page page(PROT_READ);
  Mr mr(ibv_reg_mr(pd_.get(), page.get(), kPage, IBV_ACCESS_REMOTE_READ));
  EXPECT_NE(mr, nullptr);
}

// drivers/infiniband/core/umem.c: a range that wraps around the end of the address space.
TEST_F(PdTest, ARangeThatWrapsAroundIsInvalid) {
  Page page(PROT_READ | PROT_WRITE);
  EXPECT_EQ(ibv_reg_mr(pd_.get(), page.get(), SIZE_MAX, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

// The same file: one whose last page ends where the address space does.
TEST_F(PdTest, ARangeToTheVeryEndIsInvalid) {
  Page page(PROT_READ | PROT_WRITE);
  EXPECT_EQ(ibv_reg_mr(pd_.get(), page.get(), SIZE_MAX - reinterpret_cast<uintptr_t>(page.get()), 0),
            nullptr);
  EXPECT_EQ(errno, EINVAL);
}

// Thread processor time in ns of registering and deregistering one more region: the median of 101.
int64_t time_of_one_more_region(ibv_pd* pd, void* memory) {
  const auto now = [] {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec;
  };
  std::vector<int64_t> times;
  while (times.size() < 101) {
    const int64_t begin = now();
    EXPECT_NE(Mr(ibv_reg_mr(pd, memory, kPage, kAllAccess)), nullptr);
    times.push_back(now() - begin);
  }
  std::nth_element(times.begin(), times.begin() + 50, times.end());
  return times[50];
}

TEST_F(PdTest, OneMoreRegionCostsAsMuchBesideAHundredThousandAsBesideTen) {
  Page page(PROT_READ | PROT_WRITE);
  std::vector<Mr> regions;
  const auto grow_to = [&](size_t count) {
    while (regions.size() < count) {
      regions.emplace_back(ibv_reg_mr(pd_.get(), page.get(), kPage, kAllAccess));
      ASSERT_NE(regions.back(), nullptr) << strerror(errno);
    }
  };
  grow_to(10);
  const int64_t few = time_of_one_more_region(pd_.get(), page.get());
  grow_to(100'000);
  const int64_t many = time_of_one_more_region(pd_.get(), page.get());
  EXPECT_LT(many, few * 5) << few << " ns beside 10, " << many << " ns beside 100000";
}

// The kernel (drivers/infiniband/core/umem.c, ib_umem_get) registers the pages that a range touches. A range
// of no bytes touches the page it lies in, and none at the beginning of a page.
TEST_F(PdTest, NothingAtTheBeginningOfAPageIsNoRegion) {
  Page page(PROT_READ | PROT_WRITE);
  EXPECT_EQ(ibv_reg_mr(pd_.get(), page.get(), 0, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(PdTest, NothingWithinAPageIsARegion) {
  Page page(PROT_READ | PROT_WRITE);
  Mr mr(ibv_reg_mr(pd_.get(), static_cast<char*>(page.get()) + 1024, 0, kAllAccess));
  ASSERT_NE(mr, nullptr) << strerror(errno);
  EXPECT_EQ(mr->length, 0u);
}

TEST_F(PdTest, NothingWithinAPageThatMayNotBeWrittenIsEfault) {
  Page page(PROT_READ);
  EXPECT_EQ(ibv_reg_mr(pd_.get(), static_cast<char*>(page.get()) + 1024, 0, IBV_ACCESS_LOCAL_WRITE), nullptr);
  EXPECT_EQ(errno, EFAULT);
}

TEST_F(PdTest, AnIovaElsewhereInItsPageIsInvalid) {
  Page page(PROT_READ | PROT_WRITE);
  EXPECT_EQ(ibv_reg_mr_iova(pd_.get(), page.get(), kPage, 8, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

// ---- address handles ----

}  // namespace
}  // namespace verbena::test
